// SPDX-License-Identifier: Apache-2.0

package userbackend

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/csource"
	"github.com/collage-tvm/collage/byoc/region"
	"github.com/collage-tvm/collage/pass/candidate"
)

// The packed functions that Register registers.
const (
	// RegisterFunction takes a description in JSON, the patterns (relay.dataflow_pattern.DFPattern) in the order of its
	// composites, the packed function that answers, and whether a backend of this name that was registered so may be
	// replaced. Errors name the field.
	RegisterFunction = "collage.backend.register"
	// LibrariesFunction takes the Compiler attribute of regions and gives the files that a model with such regions is
	// linked with.
	LibrariesFunction = "collage.backend.libraries"
	// DescribeFunction takes a region function and gives it as a flat program in JSON (region.Program.Describe).
	DescribeFunction = "collage.region.describe"
	// ConstantFunction takes a region function and the number of one of its program's values that is a constant, and
	// gives its NDArray.
	ConstantFunction = "collage.region.constant"
	// SourceFunction takes a region function, the backend's name, C that stands before the function, the statements
	// that compute it (csource.Kernel), and the numbers and NDArrays of constants that stand there in another form than
	// the program has them. It gives the runtime module.
	SourceFunction = "collage.csource.module"
)

var registered = struct {
	sync.Mutex
	byName map[string]*backend
}{byName: map[string]*backend{}}

// Register registers the packed functions above. TVM must be loaded; one without a compiler gets nothing.
func Register() error {
	if !bridge.HasCompiler() {
		return nil
	}
	for name, f := range map[string]func([]bridge.Value) (any, error){
		RegisterFunction: register, LibrariesFunction: libraries, DescribeFunction: describe,
		ConstantFunction: constant,
		SourceFunction:   source,
	} {
		if err := bridge.RegisterFunction(name, true, f); err != nil {
			return err
		}
	}
	return nil
}

func register(args []bridge.Value) (any, error) {
	if len(args) != 4 {
		return nil, fmt.Errorf("TypeError: %s takes a description, patterns, a function and a flag", RegisterFunction)
	}
	text, err := args[0].Str()
	if err != nil {
		return nil, err
	}
	b := &backend{}
	if err := json.Unmarshal([]byte(text), &b.description); err != nil {
		return nil, fmt.Errorf("ValueError: the description of a backend: %w", err)
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	if b.call, err = args[2].Function(); err != nil {
		return nil, err
	}
	if err := b.readPatterns(args[1]); err != nil {
		return nil, err
	}
	replace, err := args[3].Bool()
	if err != nil {
		return nil, err
	}
	registered.Lock()
	defer registered.Unlock()
	old := registered.byName[b.Name()]
	if old != nil && replace {
		byoc.Remove(old)
	}
	if err := byoc.Register(b); err != nil {
		if old != nil && replace {
			err = errors.Join(err, byoc.Register(old))
		}
		if old != nil && !replace {
			err = fmt.Errorf("%w (override=True replaces it)", err)
		}
		return nil, fmt.Errorf("ValueError: %s", strings.TrimPrefix(err.Error(), "byoc: "))
	}
	registered.byName[b.Name()] = b
	return nil, nil
}

// check looks at the fields that byoc.Validate does not know.
func (b *backend) check() error {
	if b.Kind != "operator" && b.Kind != "graph" {
		return fmt.Errorf(`ValueError: backend %q: kind: %q is neither "operator" nor "graph"`, b.Name(), b.Kind)
	}
	r := b.description.Rules
	if len(b.Composites) == 0 && r == nil && !b.has("propose") {
		return fmt.Errorf("ValueError: backend %q: patterns: there are none, nor rules, nor a proposer: it could "+
			"take nothing", b.Name())
	}
	if r == nil {
		return nil
	}
	if _, known := styles[r.Style]; !known && r.Style != "" {
		return fmt.Errorf("ValueError: backend %q: rules: the style %q is none of NoFusion, TVMFusion and "+
			"ArbitraryFusion", b.Name(), r.Style)
	}
	if len(r.Operators) == 0 {
		return fmt.Errorf("ValueError: backend %q: rules: operators is empty", b.Name())
	}
	if r.MaxDepth < 0 {
		return fmt.Errorf("ValueError: backend %q: rules: max_depth is %d", b.Name(), r.MaxDepth)
	}
	return nil
}

func (b *backend) readPatterns(v bridge.Value) error {
	list, err := v.Object()
	if err != nil {
		return err
	}
	patterns, err := list.Objects()
	if err != nil {
		return err
	}
	if len(patterns) != len(b.Composites) {
		return fmt.Errorf("ValueError: backend %q: patterns: %d names and %d patterns", b.Name(), len(b.Composites),
			len(patterns))
	}
	for i, p := range patterns {
		if !strings.HasPrefix(p.TypeKey(), "relay.dataflow_pattern.") {
			return fmt.Errorf("TypeError: backend %q: patterns[%d]: a %s is no pattern of tvm.relay.dataflow_pattern",
				b.Name(), i, p.TypeKey())
		}
		b.patterns = append(b.patterns, candidate.UserPattern{Composite: b.Composites[i], Pattern: p,
			Accept: func(root *bridge.Object) (bool, error) {
				answer, err := b.call.Invoke("accept", i, root)
				if err != nil {
					return false, err
				}
				return answer.Bool()
			}})
	}
	return nil
}

func libraries(args []bridge.Value) (any, error) {
	if len(args) != 1 {
		return nil, fmt.Errorf("TypeError: %s takes a compiler", LibrariesFunction)
	}
	compiler, err := args[0].Str()
	if err != nil {
		return nil, err
	}
	files, err := byoc.LibrariesFor(compiler)
	if err != nil {
		return nil, fmt.Errorf("ValueError: %w", err)
	}
	return append([]string{}, files...), nil
}

// program reads the first argument.
func program(args []bridge.Value, callee string, count int) (*region.Program, error) {
	if len(args) != count {
		return nil, fmt.Errorf("TypeError: %s takes %d arguments, got %d", callee, count, len(args))
	}
	fn, err := args[0].Object()
	if err != nil {
		return nil, fmt.Errorf("TypeError: %s takes a relay.Function: %w", callee, err)
	}
	return region.Read(fn)
}

func describe(args []bridge.Value) (any, error) {
	p, err := program(args, DescribeFunction, 1)
	if err != nil {
		return nil, err
	}
	defer p.Graph.Release()
	return p.Describe()
}

func constant(args []bridge.Value) (any, error) {
	p, err := program(args, ConstantFunction, 2)
	if err != nil {
		return nil, err
	}
	defer p.Graph.Release()
	v, err := args[1].Int()
	if err != nil {
		return nil, err
	}
	if v < 0 || int(v) >= len(p.Values) || !p.IsConstant(region.ValueID(v)) {
		return nil, fmt.Errorf("ValueError: the region %s has no constant v%d", p.Symbol, v)
	}
	return p.Graph.Handle(p.Values[v].Constant).Attr("data")
}

func source(args []bridge.Value) (any, error) {
	p, err := program(args, SourceFunction, 6)
	if err != nil {
		return nil, err
	}
	defer p.Graph.Release()
	var texts [3]string // the backend's name, the prelude, the statements
	for i := range texts {
		if texts[i], err = args[1+i].Str(); err != nil {
			return nil, err
		}
	}
	constants, err := csource.Pack(p, nil)
	if err == nil {
		err = repack(constants, args[4], args[5])
	}
	if err != nil {
		return nil, fmt.Errorf("ValueError: region %s: %w", p.Symbol, err)
	}
	return csource.Module(p, texts[0], texts[1], texts[2], constants)
}

// repack puts other data in the place of constants.
func repack(constants csource.Constants, numbers, arrays bridge.Value) error {
	list, err := numbers.Object()
	if err != nil {
		return err
	}
	defer list.Release()
	ids, _, err := list.Ints(-1)
	if err != nil {
		return fmt.Errorf("the constants' numbers: %w", err)
	}
	tensors, err := arrays.Object()
	if err != nil {
		return err
	}
	defer tensors.Release()
	for i, id := range ids {
		v, err := tensors.At(i)
		if err != nil {
			return err
		}
		a, err := v.NDArray()
		if err != nil {
			return err
		}
		data, err := a.Bytes()
		if err != nil {
			return err
		}
		if err := constants.Replace(region.ValueID(id),
			byoc.Tensor{DType: a.DType().String(), Shape: a.Shape(), Data: data}); err != nil {
			return err
		}
		a.Release()
	}
	return nil
}
