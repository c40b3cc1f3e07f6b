// SPDX-License-Identifier: Apache-2.0

// Package builtin puts the backends that come with Collage into the registry.
package builtin

import (
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/blas"
	"github.com/collage-tvm/collage/byoc/cuda"
	"github.com/collage-tvm/collage/byoc/dnnl"
	"github.com/collage-tvm/collage/byoc/dnnltvm"
	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/onnxruntime"
	"github.com/collage-tvm/collage/byoc/opencl"
	"github.com/collage-tvm/collage/byoc/openvino"
	"github.com/collage-tvm/collage/byoc/tvm"
)

var once sync.Once

// RegisterAll registers the backends that come with Collage. Calling it again does nothing; a backend that the program
// registered under one of these names before stays, and its error is given back.
func RegisterAll() (err error) {
	once.Do(func() {
		for _, b := range []byoc.Backend{
			tvm.New(),
			dnnl.New(),
			dnnl.NewBF16(), dnnl.NewINT8(),
			native.New(dnnl.Install),
			native.NewBF16(dnnl.Install), native.NewINT8(dnnl.Install),
			dnnltvm.New(),
			blas.NewMKL(),
			blas.NewOpenBLAS(),
			onnxruntime.New(), onnxruntime.NewINT8(),
			openvino.New(),
			openvino.NewBF16(), openvino.NewINT8(),
			opencl.New(), opencl.NewCLBlast(),
			cuda.New(), cuda.NewCuBLAS(),
		} {
			if e := byoc.Register(b); e != nil && err == nil {
				err = e
			}
		}
	})
	return err
}
