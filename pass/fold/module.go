// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// Report says what became of the constants of a module.
type Report struct {
	// Folded are the calls and fields of tuples that became constants.
	Folded int
	// Left are the calls on constants alone that TVM's FoldConstant would evaluate, and the branches on constants and
	// bindings of constants that it would see through.
	Left int
}

// Module folds the constants of each function of a module as FoldConstant(fold_qnn=false) does, as far as it can, and
// weights that stand there as bytes, which kernels of float32 are to see as what they are. The module should have been
// through InferType; it is unchanged, and the new one, which is the caller's, may be the same.
func Module(mod *bridge.Object) (*bridge.Object, Report, error) {
	var report Report
	m, err := relay.Read(mod)
	if err != nil {
		return nil, report, err
	}
	defer m.Release()
	var changed []relay.GlobalFunction
	for _, g := range m.Functions {
		if g.Attrs["Compiler"] != "" || isSet(g.Attrs["SkipOptimization"]) || isSet(g.Attrs["Primitive"]) {
			continue // as TVM's passes skip them
		}
		f := newFolder(g)
		defer f.release()
		if err := f.run(false); err != nil {
			return nil, report, fmt.Errorf("function %s: %w", g.Name, err)
		}
		report.Folded += f.folded
		report.Left += f.left
		function, err := f.r.Function()
		if err != nil {
			return nil, report, fmt.Errorf("folding constants: function %s: %w", g.Name, err)
		}
		if function.Same(g.Function()) {
			function.Release()
			continue
		}
		defer function.Release()
		changed = append(changed, relay.GlobalFunction{Var: m.GlobalVar(g.Name), Function: function})
	}
	if len(changed) == 0 {
		same, err := mod.Retain()
		return same, report, err
	}
	out, err := m.Replace(changed)
	return out, report, err
}

func isSet(attribute string) bool { return attribute != "" && attribute != "0" }
