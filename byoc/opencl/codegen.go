// SPDX-License-Identifier: Apache-2.0

package opencl

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/collage-tvm/collage/bridge"
)

// codeGenerator is TVM's for OpenCL.
const codeGenerator = "target.build.opencl"

var complete sync.Mutex

// completed says that completeCodeGenerator has done its work in this process.
var completed bool

// completeCodeGenerator has TVM's code generator for OpenCL give modules that run. The wheel's was built without an
// OpenCL runtime: what it gives has the kernels' source and no way to call them. Saved and loaded again, it becomes a
// module of the runtime that the plug-in brings. The code generator of a TVM with OpenCL gives such a module by itself,
// and saving and loading that changes nothing.
func completeCodeGenerator() error {
	complete.Lock()
	defer complete.Unlock()
	if completed {
		return nil
	}
	generate, err := bridge.GetGlobalFunction(codeGenerator)
	if err != nil {
		return fmt.Errorf("the TVM in this process has no code generator for OpenCL: %w", err)
	}
	err = bridge.RegisterFunction(codeGenerator, true, func(args []bridge.Value) (any, error) {
		given := make([]any, len(args))
		for i, arg := range args {
			given[i] = arg
		}
		made, err := generate.Invoke(given...)
		if err != nil {
			return nil, err
		}
		source, err := made.Module()
		if err != nil {
			return nil, err
		}
		defer source.Release()
		return runnable(source)
	})
	completed = err == nil
	return err
}

// runnable is a module of kernels, saved and loaded again.
func runnable(source *bridge.Module) (*bridge.Module, error) {
	folder, err := os.MkdirTemp("", "collage-opencl-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "kernels.cl")
	if err := source.Save(file, "cl"); err != nil {
		return nil, fmt.Errorf("saving the kernels: %w", err)
	}
	return bridge.LoadModuleFromFile(file, "cl")
}
