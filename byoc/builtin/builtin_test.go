// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
)

func TestRegisterAll(t *testing.T) {
	defer byoc.Reset()()
	require.NoError(t, RegisterAll())
	require.NoError(t, RegisterAll(), "a second time")
	names := []string{"tvm", "dnnl", "dnnl_tvm", "native", "mkl", "openblas", "onnxruntime", "openvino",
		"dnnl_bf16", "native_bf16", "openvino_bf16", "native_int8", "dnnl_int8", "openvino_int8", "onnxruntime_int8",
		"tvm_opencl", "clblast", "tvm_cuda", "cublas"}
	require.Len(t, byoc.All(), len(names))
	compilers := map[string]string{}
	for _, name := range names {
		b, err := byoc.Lookup(name)
		require.NoError(t, err)
		require.Equal(t, name, b.Name())
		require.NoError(t, byoc.Validate(b))
		require.Equal(t, name == "tvm", b.Compiler() == "", name)
		require.Equal(t, strings.HasSuffix(name, "_bf16"), byoc.PrecisionOf(b) == byoc.BF16, name)
		require.Equal(t, strings.HasSuffix(name, "_int8"), byoc.PrecisionOf(b) == byoc.INT8, name)
		if wide := byoc.WideOf(b); wide != name {
			require.Contains(t, names, wide)
		}
		if other := compilers[b.Compiler()]; other != "" {
			lodgers := map[string][]string{"dnnl": {"native", "dnnl_bf16", "native_bf16", "native_int8", "dnnl_int8"},
				"openvino": {"openvino_bf16", "openvino_int8"}, "onnxruntime": {"onnxruntime_int8"},
				"tvm_opencl": {"clblast"}, "tvm_cuda": {"cublas"}}
			require.Contains(t, lodgers[other], name, "only what stands in its regions shares a compiler")
		} else {
			compilers[b.Compiler()] = name
		}
		p := b.Probe()
		if !p.Usable {
			require.NotEmpty(t, p.Reason, name)
			require.NotEmpty(t, p.Remedy, name)
		}
	}
}
