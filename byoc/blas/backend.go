// SPDX-License-Identifier: Apache-2.0

// Package blas is two libraries of matrix products as backends: mkl (Intel's oneMKL) and openblas. What it knows of
// products with what follows them serves byoc/cuda as well (Products).
//
// What comes in: for the placement, graphs in which their patterns are looked for; from TVM, region functions through
// relay.ext.collage_mkl and relay.ext.collage_openblas. What goes out: the patterns with their limits, and for each
// region a short text that says which matrix products to run with which epilogue (emit.go); libcollage_mkl.so and
// libcollage_openblas.so execute it (byoc/runtime/blas_engine.cc).
package blas

import (
	"sync"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/region"
)

// library is one of the two, with what differs between them. Its name is the engine's, too.
type library struct {
	Products
	description string
	// remedy and places are for Probe.
	remedy string
	places byoc.Library
	// settings are environment variables that choose its kernels.
	settings []string
	patterns func() []byoc.Pattern
}

// NewMKL gives the backend mkl. It needs neither TVM nor oneMKL; Probe says whether oneMKL is there.
func NewMKL() byoc.Backend {
	return define(&library{
		Products:    Products{Name: "mkl", Title: "oneMKL", Gelu: true},
		description: "Intel's oneMKL: matrix products with bias, residual sum and activation, on oneTBB",
		remedy:      "pip install mkl==2024.2.2, or make backends BACKENDS=mkl in the source tree",
		places: byoc.Library{
			Env:    "COLLAGE_MKL_LIBRARY",
			Prefix: []string{"lib/libmkl_rt.so.2", "lib/libmkl_rt.so.3"},
			Names:  []string{"libmkl_rt.so.2", "libmkl_rt.so.3"},
		},
		settings: []string{"MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"},
	})
}

// NewOpenBLAS gives the backend openblas. It needs neither TVM nor OpenBLAS; Probe says whether OpenBLAS is there.
func NewOpenBLAS() byoc.Backend {
	return define(&library{
		Products:    Products{Name: "openblas", Title: "OpenBLAS", Gelu: true},
		description: "OpenBLAS: matrix products with bias, residual sum and activation, split over oneTBB",
		remedy:      "pip install scipy-openblas32, or make backends BACKENDS=openblas in the source tree",
		places: byoc.Library{
			Env:      "COLLAGE_OPENBLAS_LIBRARY",
			Packages: []string{"scipy_openblas32/lib/libscipy_openblas.so"},
			Names:    []string{"libscipy_openblas.so", "libopenblas.so.0", "libopenblas.so"},
		},
		settings: []string{"OPENBLAS_CORETYPE"},
	})
}

func define(l *library) byoc.Backend {
	l.patterns = sync.OnceValue(l.Products.Patterns)
	return l
}

func (l *library) Name() string             { return l.Products.Name }
func (l *library) Description() string      { return l.description }
func (l *library) Level() byoc.Level        { return byoc.OperatorLevel }
func (l *library) Compiler() string         { return "collage_" + l.Products.Name }
func (l *library) Patterns() []byoc.Pattern { return l.patterns() }
func (l *library) TakesAnything() bool      { return false }

// MergesRegions is false: a matrix product has nothing to gain from its neighbours beside its epilogue.
func (l *library) MergesRegions() bool { return false }

// Install registers relay.ext.<Compiler> and loads the plug-in; the library itself is opened when a region first runs.
func (l *library) Install() error {
	return region.Register(l.Compiler(), l.Products.Name, l.Products.Name, l.Write)
}
