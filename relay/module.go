// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"slices"

	"github.com/collage-tvm/collage/bridge"
)

// NewGlobalVar makes a global variable: the name by which functions of a module call each other.
func NewGlobalVar(name string) (*bridge.Object, error) { return object("ir.GlobalVar", name, nil) }

// ModuleFromFunctions makes a module of functions by name.
func ModuleFromFunctions(functions map[string]*bridge.Object) (*bridge.Object, error) {
	names := make([]string, 0, len(functions))
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	var pairs []any
	for _, name := range names {
		v, err := NewGlobalVar(name)
		if err != nil {
			return nil, err
		}
		defer v.Release()
		pairs = append(pairs, v, functions[name])
	}
	return newModule(pairs, nil)
}

// GlobalFunction is a function and the variable by which others call it.
type GlobalFunction struct {
	Var, Function *bridge.Object
}

// Replace returns a new module like m with functions replaced or added: those whose Var is one of m's
// (GlobalVar) replace its function, the others are new and must have new names. The module that was read is
// unchanged. Types of the result are not inferred.
func (m *Module) Replace(functions []GlobalFunction) (*bridge.Object, error) {
	current, err := m.object.AttrObject("functions")
	if err != nil {
		return nil, err
	}
	defer current.Release()
	entries, err := current.Entries()
	if err != nil {
		return nil, err
	}
	replaced := map[uintptr]*bridge.Object{}
	for _, f := range functions {
		name, err := f.Var.AttrString("name_hint")
		if err != nil {
			return nil, err
		}
		if old := m.globals[name]; old != nil && !old.Same(f.Var) {
			return nil, fmt.Errorf("ValueError: the module has another function named %s", name)
		}
		replaced[f.Var.Pointer()] = f.Function
	}
	var pairs []any
	for _, e := range entries {
		defer e.Key.Release()
		defer e.Value.Release()
		v, err := e.Key.Object()
		if err != nil {
			return nil, err
		}
		if f := replaced[v.Pointer()]; f != nil {
			delete(replaced, v.Pointer())
			pairs = append(pairs, v, f)
		} else {
			pairs = append(pairs, v, e.Value)
		}
	}
	for _, f := range functions {
		if replaced[f.Var.Pointer()] != nil {
			pairs = append(pairs, f.Var, f.Function)
		}
	}
	return newModule(pairs, m.object)
}

// newModule makes a module of variables and functions, in turn; like, which may be nil, gives it its type
// definitions, attributes and global infos. TVM before 0.11 has no global infos.
func newModule(pairs []any, like *bridge.Object) (*bridge.Object, error) {
	functions, err := bridge.NewMap(pairs...)
	if err != nil {
		return nil, err
	}
	defer functions.Release()
	var definitions, attrs, infos *bridge.Object
	if like != nil {
		if definitions, err = like.AttrObject("type_definitions"); err != nil {
			return nil, err
		}
		attrs, _ = like.AttrObject("attrs") // older TVMs have none of these
		infos, _ = like.AttrObject("global_infos")
	}
	for _, m := range []**bridge.Object{&definitions, &infos} {
		if *m == nil {
			if *m, err = bridge.NewMap(); err != nil {
				return nil, err
			}
		}
		defer (*m).Release()
	}
	if attrs == nil {
		if attrs, err = NewDictAttrs(nil); err != nil {
			return nil, err
		}
	}
	defer attrs.Release()
	return object("ir.IRModule", functions, definitions, attrs, infos)
}

// InferType returns the module with the types of all its Relay functions inferred; mod is unchanged.
func InferType(mod *bridge.Object) (*bridge.Object, error) {
	pass, err := object("relay._transform.InferType")
	if err != nil {
		return nil, err
	}
	defer pass.Release()
	return object("transform.RunPass", pass, mod)
}

// StructuralEqual says that TVM considers two modules or expressions the same up to variables' names.
func StructuralEqual(a, b *bridge.Object) (bool, error) {
	v, err := bridge.Global("node.StructuralEqual", a, b, false, true)
	if err != nil {
		return false, err
	}
	return v.Bool()
}

// IsSet says that an attribute of a function's is there, and true.
func IsSet(attr string) bool { return attr != "" && attr != "0" }
