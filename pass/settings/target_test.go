// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/cpu"
)

func TestTargetsOfLevels(t *testing.T) {
	for _, level := range TargetLevels {
		target, err := ResolveTarget(level)
		require.NoError(t, err)
		require.Equal(t, "llvm -mcpu="+level, target)
	}
	target, err := ResolveTarget("llvm -mcpu=skylake -num-cores=4")
	require.NoError(t, err)
	require.Equal(t, "llvm -mcpu=skylake -num-cores=4", target, "TVM's own stay as they are")
	_, err = ResolveTarget("x86-64-v5")
	require.ErrorContains(t, err, `no level "x86-64-v5"; there are x86-64, x86-64-v2, x86-64-v3, x86-64-v4`)
}

func TestTheNativeTargetKeepsToTheCap(t *testing.T) {
	t.Setenv("COLLAGE_MAX_CPU_ISA", "AVX2")
	target, err := ResolveTarget(NativeTarget)
	require.NoError(t, err)
	if cpu.X86.HasAVX512F {
		require.Equal(t, "llvm -mcpu=x86-64-v3", target)
	}
	t.Setenv("COLLAGE_MAX_CPU_ISA", "plain")
	if target, err = ResolveTarget(NativeTarget); cpu.X86.HasAVX {
		require.NoError(t, err)
		require.Equal(t, "llvm -mcpu=x86-64-v2", target)
	}
}
