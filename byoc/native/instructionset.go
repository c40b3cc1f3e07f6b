// SPDX-License-Identifier: Apache-2.0

package native

import (
	"os"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc/onednn"
)

// instructionSet is a level of vector instructions that kernels are compiled for (byoc/runtime/instruction_set.h).
type instructionSet int

const (
	plain instructionSet = iota
	avx2
	avx512
	avx512VNNI // products of bytes
	avx512BF16 // products of bfloat16
	amx        // tiles of both
)

func (s instructionSet) String() string {
	return [...]string{"plain", "avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx"}[s]
}

// bestInstructionSet is what the kernels of float32 will use in this process.
func bestInstructionSet() instructionSet { return min(allowedInstructionSet(), avx512) }

// allowedInstructionSet is what the processor has, capped by the environment as the runtime caps it.
func allowedInstructionSet() instructionSet {
	return min(ofProcessor(onednn.CPUFeatures()), capOf(os.Getenv))
}

func ofProcessor(features []string) instructionSet {
	has := func(feature string) bool { return slices.Contains(features, feature) }
	switch {
	case has("avx512_core") && has("avx512_core_vnni") && has("avx512_core_bf16") && has("avx512_core_amx"):
		return amx
	case has("avx512_core") && has("avx512_core_vnni") && has("avx512_core_bf16"):
		return avx512BF16
	case has("avx512_core") && has("avx512_core_vnni"):
		return avx512VNNI
	case has("avx512_core"):
		return avx512
	case has("avx2"):
		return avx2
	}
	return plain
}

// capOf reads COLLAGE_MAX_CPU_ISA, or else what oneDNN is told.
func capOf(getenv func(string) string) instructionSet {
	switch strings.ToLower(getenv("COLLAGE_MAX_CPU_ISA")) {
	case "plain":
		return plain
	case "avx2":
		return avx2
	case "avx512":
		return avx512
	case "avx512_vnni":
		return avx512VNNI
	case "avx512_bf16":
		return avx512BF16
	case "amx":
		return amx
	}
	theirs := getenv("ONEDNN_MAX_CPU_ISA")
	if theirs == "" {
		theirs = getenv("DNNL_MAX_CPU_ISA")
	}
	theirs = strings.ToLower(theirs)
	switch {
	case theirs == "sse41" || theirs == "avx":
		return plain
	case strings.HasPrefix(theirs, "avx2") || strings.HasPrefix(theirs, "avx512_mic"):
		return avx2
	case theirs == "avx512_core":
		return avx512
	case theirs == "avx512_core_vnni":
		return avx512VNNI
	case theirs == "avx512_core_bf16":
		return avx512BF16
	}
	return amx
}
