// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/cpu"

	"github.com/collage-tvm/collage/bridge"
)

// NativeTarget is the name of this machine's processor, in the place of a target of TVM's.
const NativeTarget = "native"

// TargetLevels are names for processors that have at least what the x86-64 psABI's levels say, in the place of targets.
var TargetLevels = []string{"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"}

// ResolveTarget gives TVM's target string for what users write: one of TargetLevels, NativeTarget, a target of TVM's
// as it is, or "" for the one of the Target scope around the call, else NativeTarget.
func ResolveTarget(name string) (string, error) {
	switch {
	case name == "":
		return defaultTarget()
	case name == NativeTarget:
		return nativeTarget(), nil
	case slices.Contains(TargetLevels, name):
		return "llvm -mcpu=" + name, nil
	case strings.HasPrefix(name, "x86-64"):
		return "", fmt.Errorf("there is no level %q; there are %s", name, strings.Join(TargetLevels, ", "))
	}
	return name, nil
}

// defaultTarget is the target of this thread's Target scope if there is one, else "llvm" for this processor.
func defaultTarget() (string, error) {
	if v, err := bridge.Global("target.TargetCurrent", true); err == nil && !v.IsNil() {
		target, err := v.Object()
		if err != nil {
			return "", err
		}
		defer target.Release()
		return target.Text(), nil
	}
	return nativeTarget(), nil
}

// nativeTarget is "llvm" for this processor, as far as COLLAGE_MAX_CPU_ISA allows it: what was compiled for more than
// that would be refused here.
func nativeTarget() string {
	switch strings.ToLower(os.Getenv("COLLAGE_MAX_CPU_ISA")) {
	case "avx2":
		if cpu.X86.HasAVX512F {
			return "llvm -mcpu=x86-64-v3"
		}
	case "plain":
		if cpu.X86.HasAVX {
			return "llvm -mcpu=x86-64-v2"
		}
	}
	// Where TVM cannot say, it compiles for any processor of this architecture.
	v, err := bridge.Global("target.llvm_get_system_cpu")
	if err != nil {
		return "llvm"
	}
	name, err := v.Str()
	if err != nil || name == "" || name == "generic" {
		return "llvm"
	}
	return "llvm -mcpu=" + name
}
