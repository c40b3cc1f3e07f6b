// SPDX-License-Identifier: Apache-2.0

package byoc

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestInstructionsMayBeForbidden(t *testing.T) {
	t.Parallel()
	for _, of := range []struct {
		set        map[string]string
		bf16, int8 string
	}{
		{nil, "", ""},
		{map[string]string{"COLLAGE_MAX_CPU_ISA": "avx512"}, "COLLAGE_MAX_CPU_ISA", "COLLAGE_MAX_CPU_ISA"},
		{map[string]string{"COLLAGE_MAX_CPU_ISA": "AVX512_VNNI"}, "COLLAGE_MAX_CPU_ISA", ""},
		{map[string]string{"COLLAGE_MAX_CPU_ISA": "avx512_bf16"}, "", ""},
		{map[string]string{"ONEDNN_MAX_CPU_ISA": "avx2_vnni"}, "ONEDNN_MAX_CPU_ISA", ""},
		{map[string]string{"DNNL_MAX_CPU_ISA": "SSE41"}, "DNNL_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"},
		{map[string]string{"COLLAGE_MAX_CPU_ISA": "amx", "ONEDNN_MAX_CPU_ISA": "sse41"}, "", ""},
	} {
		getenv := func(name string) string { return of.set[name] }
		name, value := capped(BF16, getenv)
		assert.Equal(t, of.bf16, name, "%v", of.set)
		assert.Equal(t, of.set[name], value)
		name, _ = capped(INT8, getenv)
		assert.Equal(t, of.int8, name, "%v", of.set)
	}
}

func TestForbiddenInstructionsAreNoCandidate(t *testing.T) {
	t.Setenv("COLLAGE_MAX_CPU_ISA", "avx2")
	assert.Empty(t, NarrowTypes())
	for _, probe := range []Probe{ProbeBF16(Probe{Usable: true}, "dnnl"), ProbeINT8(Probe{Usable: true}, "dnnl")} {
		assert.False(t, probe.Usable)
		assert.Contains(t, probe.Reason, "COLLAGE_MAX_CPU_ISA=avx2 forbids")
		assert.Equal(t, "use dnnl", probe.Remedy)
	}
	absent := ProbeBF16(Probe{Reason: "no library"}, "dnnl")
	assert.Equal(t, "no library", absent.Reason, "what the library lacks comes first")
}
