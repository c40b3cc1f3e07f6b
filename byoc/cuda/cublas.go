// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/blas"
	"github.com/collage-tvm/collage/byoc/device"
	"github.com/collage-tvm/collage/byoc/region"
)

// CuBLASName is what users write in --backends, and the first part of composites ("cublas.dense_bias_relu").
const CuBLASName = "cublas"

// products are what cuBLASLt takes. Its GELU is the one by tanh, which Relay's is not.
var products = blas.Products{Name: CuBLASName, Title: "cuBLAS"}

// calls are the calls of cuBLASLt within a region.
var calls = device.Calls{Of: CuBLASName, Creates: "collage.runtime.cuda.CublasCreate", Kind: kindName, Write: callText}

type cublas struct{ *device.Remote }

// NewCuBLAS gives the backend cublas. It needs neither TVM nor CUDA nor cuBLAS; Probe says whether they are there.
func NewCuBLAS() byoc.Backend { return &cublas{device.NewRemote(&kind)} }

func (*cublas) Name() string { return CuBLASName }
func (*cublas) Description() string {
	return "cuBLASLt: matrix products with bias, residual sum and rectifier on an NVIDIA card, in one region with tvm_cuda"
}
func (*cublas) Level() byoc.Level        { return byoc.OperatorLevel }
func (*cublas) Patterns() []byoc.Pattern { return cublasPatterns() }

var cublasPatterns = sync.OnceValue(products.Patterns)

// cublasPlaces are where cuBLASLt may lie (byoc/runtime/cuda_cublas.cc).
var cublasPlaces = byoc.Library{
	Env:      "COLLAGE_CUBLASLT_LIBRARY",
	Packages: []string{"nvidia/cublas/lib/libcublasLt.so.12", "nvidia/cu13/lib/libcublasLt.so.13"},
	Names:    []string{"libcublasLt.so.12", "libcublasLt.so.13", "libcublasLt.so"},
}

// Probe looks for what tvm_cuda needs, and for cuBLASLt, without loading any of it.
func (*cublas) Probe() byoc.Probe {
	return device.ProbeBeside(New().Probe(), "cuBLAS", cublasPlaces, "cublaslt.",
		"make backends BACKENDS=cublas, or pip install nvidia-cublas-cu12")
}

// callText writes the function of one composite for byoc/runtime/cuda_cublas.cc, as a region of one product.
func callText(p *region.Program) (string, error) {
	text, constants, err := products.Write(p)
	if err == nil && len(constants) > 0 {
		err = fmt.Errorf("a call of cuBLAS has constants of its own")
	}
	return string(text), err
}
