// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/relay"
)

func f(shape ...int64) *relay.Type { return relay.Tensor("float32", shape...) }

// operation is a graph of one operator whose right side is a parameter, too.
func operation(op string, attrs map[string]any, left, right, out *relay.Type) *relay.Graph {
	m := relay.NewGraph("main")
	return m.Finish(m.Call(op, out, attrs, m.Var(left.Shape, left.DType), m.Var(right.Shape, right.DType)))
}

func convolution(left, right, out *relay.Type, changed ...any) *relay.Graph {
	attrs := map[string]any{"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": "", "groups": int64(1),
		"padding": []int64{0, 0, 0, 0}, "strides": []int64{1, 1}, "dilation": []int64{1, 1}}
	for i := 0; i < len(changed); i += 2 {
		attrs[changed[i].(string)] = changed[i+1]
	}
	return operation("nn.conv2d", attrs, left, right, out)
}

func transposed(a, b bool) map[string]any { return map[string]any{"transpose_a": a, "transpose_b": b} }

func TestCLBlastIsValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, byoc.Validate(NewCLBlast()))
	require.True(t, byoc.ShareRegions(New(), NewCLBlast()))
	require.Equal(t, []string{"convgemm", "gemm", "gemv"}, byoc.Kernels(NewCLBlast()))
}

// What a call is, as opencl_clblast.cc reads it, and what is refused. The arguments of a call are in the order of its
// operator's: the data is 0, the weight 1.
func TestCallsOfCLBlast(t *testing.T) {
	t.Parallel()
	dense := map[string]any{"out_dtype": ""}
	for _, c := range []struct {
		composite string
		g         *relay.Graph
		line      string // or, behind a "!", what the refusal says
	}{
		{"gemm_dense", operation("nn.dense", dense, f(5, 24), f(16, 24), f(5, 16)), "gemm 5 16 24 1 0 1 0 1 0 0"},
		{"gemv_dense", operation("nn.dense", dense, f(1, 24), f(16, 24), f(1, 16)), "gemv 16 24 1 0"},
		{"gemv_dense", operation("nn.dense", dense, f(5, 24), f(16, 24), f(5, 16)), "!has 5 rows; a vector is one"},
		{"gemv_matmul", operation("nn.matmul", transposed(false, false), f(1, 24), f(24, 16), f(1, 16)),
			"!the right side of nn.matmul is not transposed"},
		{"gemm_matmul", operation("nn.matmul", transposed(true, false), f(24, 5), f(24, 16), f(5, 16)),
			"gemm 5 16 24 1 1 0 0 1 0 0"},
		{"gemm_batch_matmul", operation("nn.batch_matmul", transposed(false, true), f(3, 5, 24), f(3, 7, 24), f(3, 5, 7)),
			"gemm 5 7 24 3 0 1 0 1 120 168"},
		{"gemm_batch_matmul", operation("nn.batch_matmul", transposed(true, false), f(1, 24, 5), f(3, 24, 7), f(3, 5, 7)),
			"gemm 5 7 24 3 1 0 0 1 0 168"},
		{"gemm_batch_matmul", operation("nn.batch_matmul", transposed(false, true), f(3, 5, 24), f(1, 7, 24), f(3, 5, 7)),
			"gemm 15 7 24 1 0 1 0 1 0 0"},
		{"gemm_dense", operation("nn.dense", dense, relay.Tensor("float64", 5, 24), relay.Tensor("float64", 16, 24),
			relay.Tensor("float64", 5, 16)), "!float64; only float32 is supported"},
		{"convgemm_conv2d", convolution(f(2, 6, 11, 9), f(5, 6, 3, 2), f(2, 5, 7, 8), "padding", []int64{2, 1, 2, 1},
			"strides", []int64{2, 1}, "dilation", []int64{1, 2}), "convgemm 2 6 11 9 5 3 2 2 1 2 1 1 2 0 1"},
		{"convgemm_conv2d", convolution(f(2, 6, 11, 9), f(5, 6, 3, 3), f(2, 5, 11, 9), "padding", []int64{1}),
			"convgemm 2 6 11 9 5 3 3 1 1 1 1 1 1 0 1"},
		{"convgemm_conv2d", convolution(f(2, 6, 11, 9), f(5, 6, 3, 3), f(2, 5, 10, 8), "padding", []int64{0, 0, 1, 1}),
			"!not the same on both sides"},
		{"convgemm_conv2d", convolution(f(2, 6, 11, 9), f(6, 3, 3, 3), f(2, 6, 9, 7), "groups", int64(2)),
			"!has 2 groups; only one is supported"},
		{"convgemm_conv2d", convolution(f(2, 11, 9, 6), f(5, 6, 3, 3), f(2, 9, 7, 5), "data_layout", "NHWC"),
			"!has the data_layout NHWC; only NCHW is supported"},
		{"convgemm_conv2d", convolution(f(2, 6, 11, 9), f(5, 6, 3, 3), f(2, 5, 9, 7), "padding", []int64{}),
			"!no usable attribute padding"},
		{"convgemm_conv2d", convolution(f(2, 6, 11, 9), f(5, 6, 3, 3), relay.Tensor("float64", 2, 5, 9, 7)),
			"!the result of nn.conv2d is float64"},
		{"convgemm_conv2d", convolution(f(2, 6, 11), f(5, 6, 3, 3), f(2, 5, 9, 7)), "!only float32 of 4 dimensions"},
		{"gemm_conv2d", convolution(f(2, 6, 11, 9), f(5, 6, 1, 1), f(2, 5, 11, 9)), "gemm 5 99 6 2 0 0 1 0 0 594"},
		{"gemm_conv2d", convolution(f(2, 6, 11, 9), f(5, 6, 1, 1), f(2, 5, 6, 5), "strides", []int64{2, 2}), "!strides"},
		{"gemm_conv2d", convolution(f(2, 6, 11, 9), f(5, 6, 3, 3), f(2, 5, 9, 7)), "!window"},
		{"gemm_sparse", operation("nn.dense", dense, f(5, 24), f(16, 24), f(5, 16)), "!does not know the composite"},
	} {
		p, err := region.FromGraph(c.g, "r")
		require.NoError(t, err)
		p.Composites = []string{CLBlastName + "." + c.composite}
		p.Ops[0].CompositeIndex = 0
		line, err := callLine(p)
		said := fmt.Sprint(c.composite, c.line)
		if refusal, refused := strings.CutPrefix(c.line, "!"); refused {
			require.ErrorContains(t, err, refusal, said)
		} else {
			require.NoError(t, err, said)
			require.Equal(t, c.line, line)
		}
		// Patterns say the same as who writes the call.
		for _, pattern := range NewCLBlast().Patterns() {
			if pattern.Composite == p.Composites[0] {
				found := c.g.Match(pattern.Shape, c.g.Root())
				require.Len(t, found, 1, said)
				require.Equal(t, err == nil, pattern.Limits(c.g, found[0]) == nil, said)
			}
		}
	}
}

func TestACallIsOneOperatorOfItsArguments(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Call("exp", f(5, 24), nil, m.Var([]int64{5, 24}, "float32"))
	p, err := region.FromGraph(m.Finish(m.Call("nn.dense", f(5, 16), nil, x, m.Const([]int64{16, 24}, "float32"))), "r")
	require.NoError(t, err)
	p.Composites = []string{"clblast.gemm_dense"}
	_, err = callLine(p)
	require.ErrorContains(t, err, "is one operator, and not 2")
	m = relay.NewGraph("main")
	p, err = region.FromGraph(m.Finish(m.Call("nn.dense", f(5, 16), map[string]any{"out_dtype": ""},
		m.Var([]int64{5, 24}, "float32"), m.Const([]int64{16, 24}, "float32"))), "r")
	require.NoError(t, err)
	p.Composites = []string{"clblast.gemm_dense"}
	_, err = callLine(p)
	require.ErrorContains(t, err, "reads something that is no argument of its call")
}

func TestProbeOfCLBlast(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"libcollage_opencl.so": "", "libOpenCL.so.1": "", "a.icd": "libgpu.so.3\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	t.Setenv(byoc.PluginDirEnv, folder)
	t.Setenv("COLLAGE_OPENCL_LIBRARY", filepath.Join(folder, "libOpenCL.so.1"))
	t.Setenv(vendorsEnv, filepath.Join(folder, "nowhere"))
	t.Setenv("COLLAGE_CLBLAST_LIBRARY", filepath.Join(folder, "libclblast.so.1"))
	require.Contains(t, NewCLBlast().Probe().Reason, "has no driver", "what tvm_opencl lacks clblast lacks")
	t.Setenv(vendorsEnv, filepath.Join(folder, "a.icd"))
	p := NewCLBlast().Probe()
	require.False(t, p.Usable)
	require.Contains(t, p.Reason, "COLLAGE_CLBLAST_LIBRARY is")
	require.Contains(t, p.Remedy, "make backends BACKENDS=clblast")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "libclblast.so.1.5.3"), nil, 0o644))
	require.NoError(t, os.Symlink("libclblast.so.1.5.3", filepath.Join(folder, "libclblast.so.1")))
	p = NewCLBlast().Probe()
	require.True(t, p.Usable, p.Reason)
	require.True(t, strings.HasPrefix(p.Version, "1.5.3+") && strings.HasSuffix(p.Version, New().Probe().Version), p.Version)
}
