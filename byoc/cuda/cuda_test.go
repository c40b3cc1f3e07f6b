// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

func TestDescription(t *testing.T) {
	t.Parallel()
	require.NoError(t, byoc.Validate(New()))
	require.Equal(t, "cuda", byoc.DeviceOf(New()))
	require.Equal(t, "collage_cuda", New().Compiler())
	require.NotEmpty(t, New().Description())
}

func TestWhatStaysOnTheProcessor(t *testing.T) {
	t.Parallel()
	supports := New().(byoc.Ruler).Rules().Supports
	for dtype, reason := range map[string]string{"float32": "", "float64": "", "int8": "",
		"float16": "float16 is not computed with on every CUDA device", "bfloat16": "bfloat16 is not computed"} {
		m := relay.NewGraph("main")
		call := m.Call("tan", relay.Tensor(dtype, 2), nil, m.Var([]int64{2}, dtype))
		g := m.Finish(call)
		if err := supports(g, call); reason == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, reason)
		}
	}
}

func TestProbe(t *testing.T) {
	folder := t.TempDir()
	write := func(name string) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, nil, 0o644))
		return path
	}
	t.Setenv(byoc.PluginDirEnv, folder)
	t.Setenv(ArchEnv, "")
	t.Setenv(driver.Env, filepath.Join(folder, "libcuda.so.1"))
	t.Setenv(compiler.Env, filepath.Join(folder, "libnvrtc.so.12"))
	unusable := func(reason, remedy string) {
		t.Helper()
		p := New().Probe()
		require.False(t, p.Usable)
		require.Contains(t, p.Reason, reason)
		require.Contains(t, p.Remedy, remedy)
	}
	unusable("libcollage_cuda.so", "make build")
	write("libcollage_cuda.so")
	unusable(driver.Env+" is", "install the driver of your NVIDIA card")
	path := write("libcuda.so.1")
	unusable(compiler.Env+" is", "make backends BACKENDS=cuda")
	write("libnvrtc.so.12")
	p := New().Probe()
	require.True(t, p.Usable, p.Reason)
	require.Equal(t, byoc.Probe{Library: "CUDA", Usable: true, Path: path, Version: "nvrtc.12+collage.1",
		Features: []string{"NVRTC 12"}}, p)
	// For another machine's card, of which the costs are others.
	t.Setenv(ArchEnv, "sm_90")
	require.NoError(t, os.Remove(path))
	p = New().Probe()
	require.True(t, p.Usable, p.Reason)
	require.Equal(t, "nvrtc.12+collage.1+sm_90", p.Version)
	require.Equal(t, []string{"NVRTC 12", "sm_90"}, p.Features)
	text, architecture, err := kind.Target(&kind)
	require.NoError(t, err)
	require.Equal(t, []string{"cuda -arch=sm_90", "sm_90"}, []string{text, architecture})
	t.Setenv(ArchEnv, "90")
	unusable(`COLLAGE_CUDA_ARCH is "90"`, "unset")
	_, _, err = kind.Target(&kind)
	require.ErrorContains(t, err, `COLLAGE_CUDA_ARCH is "90"`)
}
