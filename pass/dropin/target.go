// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/candidate"
)

// PatternTable is the packed function that gives the pattern table of an external code generator as the array [name,
// pattern, name, pattern, ...], None where there is none; PatternAccepts is called with the compiler, the pattern's
// number and the matched expression, and gives what the table's predicate says. Python registers both.
const (
	PatternTable   = "collage.host.pattern_table"
	PatternAccepts = "collage.host.pattern_accepts"
)

// The options of the PassContext, which TVM's prototype registers.
const (
	nativeDepthOption = "relay.collage.tvm_max_depth"
	byocDepthOption   = "relay.collage.byoc_max_depth"
	styleOption       = "relay.collage.byoc_fusion_style"
)

// defaultDepth holds where a depth option is not set. TVM's prototype refuses to run then.
const defaultDepth = 8

// depths are what the PassContext says.
type depths struct {
	nativeDepth, byocDepth int
	styles                 []string // "tensorrt.TVMFusion"
}

// target is one of the targets on offer (TVM's prototype: PartitionSpec).
type target struct {
	// name is "tvm_" and the kind for TVM, the kind for an external code generator.
	name string
	// kind is the target kind's name.
	kind   string
	object *bridge.Object
	// external says that the target is an external code generator; its kind is the regions' attribute Compiler.
	external bool
	patterns []candidate.UserPattern
	rules    candidate.Rules
}

func (t *target) compiler() string {
	if t.external {
		return t.kind
	}
	return ""
}

// readDepths reads the options of the PassContext around the call.
func readDepths() (depths, error) {
	s := depths{nativeDepth: defaultDepth, byocDepth: defaultDepth}
	for _, option := range []struct {
		key   string
		field *int
	}{{nativeDepthOption, &s.nativeDepth}, {byocDepthOption, &s.byocDepth}} {
		v, ok, err := bridge.PassContextConfig(option.key)
		if err != nil {
			return s, err
		}
		if !ok {
			continue
		}
		n, err := v.Int()
		if err != nil || n <= 0 {
			return s, fmt.Errorf("ValueError: the PassContext's option %s must be a positive integer", option.key)
		}
		*option.field = int(n)
	}
	v, ok, err := bridge.PassContextConfig(styleOption)
	if err != nil || !ok || v.IsNil() {
		return s, err
	}
	list, err := v.Object()
	if err != nil {
		return s, err
	}
	defer list.Release()
	s.styles, err = list.Strings()
	return s, err
}

// style is how matches of a code generator's patterns are combined: what the option says, else what TVM's prototype
// takes for it.
func (s *depths) style(compiler string) (byoc.Style, error) {
	for _, entry := range s.styles {
		name, style, _ := strings.Cut(entry, ".")
		if name != compiler {
			continue
		}
		switch style {
		case "NoFusion":
			return byoc.NoFusion, nil
		case "TVMFusion":
			return byoc.TVMFusion, nil
		case "ArbitraryFusion":
			return byoc.ArbitraryFusion, nil
		}
		return 0, fmt.Errorf("ValueError: %s has %q; the styles are NoFusion, TVMFusion and ArbitraryFusion",
			styleOption, entry)
	}
	switch compiler {
	case "cutlass", "cublas", "cudnn":
		return byoc.NoFusion, nil
	case "tensorrt":
		return byoc.TVMFusion, nil
	}
	return byoc.ArbitraryFusion, nil
}

// readTargets reads a CompilationConfig.
func readTargets(config *bridge.Object, s *depths) ([]*target, error) {
	list, err := config.AttrObject("primitive_targets")
	if err != nil || list == nil {
		return nil, fmt.Errorf("TypeError: CollagePartition takes a CompilationConfig, not a %s", config.TypeKey())
	}
	defer list.Release()
	objects, err := list.Objects()
	if err != nil {
		return nil, err
	}
	targets := make([]*target, len(objects))
	for i, o := range objects {
		if targets[i], err = readTarget(o, s); err != nil {
			return nil, err
		}
	}
	return targets, nil
}

func readTarget(o *bridge.Object, s *depths) (*target, error) {
	kind, err := o.AttrObject("kind")
	if err != nil {
		return nil, err
	}
	defer kind.Release()
	t := &target{object: o}
	if t.kind, err = kind.AttrString("name"); err != nil {
		return nil, err
	}
	if t.external, err = isExternal(kind); err != nil {
		return nil, err
	}
	if !t.external {
		t.name = "tvm_" + t.kind
		t.rules = candidate.NativeRules(s.nativeDepth)
		return t, nil
	}
	t.name = t.kind
	style, err := s.style(t.kind)
	if err != nil {
		return nil, err
	}
	t.rules = candidate.StyleRules(style, s.byocDepth)
	t.patterns, err = readPatterns(t.kind)
	return t, err
}

// isExternal says that a target kind stands for an external code generator (TVM: Target::IsExternalCodegen).
func isExternal(kind *bridge.Object) (bool, error) {
	v, err := bridge.Global("target.TargetKindGetAttr", kind, "is_external_codegen")
	if err != nil {
		return false, err
	}
	if !v.IsNil() {
		if yes, err := v.Bool(); err != nil || yes {
			return yes, err
		}
	}
	v, err = bridge.Global("target.TargetKindGetAttr", kind, "RelayToTIR")
	if err != nil {
		return false, err
	}
	defer v.Release()
	return !v.IsNil(), nil
}

// readPatterns asks Python for a pattern table.
func readPatterns(compiler string) ([]candidate.UserPattern, error) {
	v, err := bridge.Global(PatternTable, compiler)
	if err != nil {
		return nil, err
	}
	if v.IsNil() {
		return nil, fmt.Errorf("ValueError: no pattern table is registered for the external code generator %q "+
			"(tvm.relay.op.contrib.register_pattern_table)", compiler)
	}
	list, err := v.Object()
	if err != nil {
		return nil, err
	}
	defer list.Release()
	items, err := list.Items()
	if err != nil {
		return nil, err
	}
	var patterns []candidate.UserPattern
	for i := 0; i+1 < len(items); i += 2 {
		p := candidate.UserPattern{}
		if p.Composite, err = items[i].Str(); err != nil {
			return nil, err
		}
		if p.Pattern, err = items[i+1].Object(); err != nil {
			return nil, err
		}
		p.Accept = func(root *bridge.Object) (bool, error) {
			v, err := bridge.Global(PatternAccepts, compiler, i/2, root)
			if err != nil {
				return false, err
			}
			return v.Bool()
		}
		patterns = append(patterns, p)
	}
	return slices.Clip(patterns), nil
}

// within runs f with the target in scope: predicates may look at it.
func (t *target) within(f func() error) (err error) {
	if _, err := bridge.Global("target.TargetEnterScope", t.object); err != nil {
		return err
	}
	defer func() {
		if _, e := bridge.Global("target.TargetExitScope", t.object); e != nil && err == nil {
			err = e
		}
	}()
	return f()
}
