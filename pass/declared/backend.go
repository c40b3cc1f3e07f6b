// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// made is a backend that exists in a file alone. Plans can be made with it, explained and written into modules; what
// they say cannot be built.
type made struct {
	name, source string
	said         *Backend
}

func (m *made) Name() string { return m.name }
func (m *made) Description() string {
	return "declared in " + m.source + ": plans can be made with it, and not built"
}
func (m *made) Level() byoc.Level        { return byoc.OperatorLevel }
func (m *made) Compiler() string         { return compilerOf(m.name) }
func (m *made) Patterns() []byoc.Pattern { return nil }
func (m *made) TakesAnything() bool      { return false }
func (m *made) MergesRegions() bool      { return true }

// Probe implements byoc.Backend.
func (m *made) Probe() byoc.Probe {
	return byoc.Probe{Usable: true, Library: "declared", Version: m.source}
}

// compilerOf is the Compiler attribute of a backend's regions: its name, as a part of a C symbol.
func compilerOf(name string) string {
	text := []byte("declared_" + name)
	for i, c := range text {
		if c == '-' {
			text[i] = '_'
		}
	}
	return string(text)
}

// Install implements byoc.Backend: whoever builds the regions is told that there is no code for them.
func (m *made) Install() error {
	return byoc.ModuleEmitter(func(*bridge.Object) (any, error) {
		return nil, errors.New("it is declared in a file of costs: nothing can be built for it")
	}).Install(m)
}

// Rules implements byoc.Ruler: the operators that the file names, and what TVM would fuse of them.
func (m *made) Rules() *byoc.Rules {
	style := byoc.TVMFusion
	if m.said.NoFusion {
		style = byoc.NoFusion
	}
	return &byoc.Rules{Supports: m.refusal, Style: style}
}

func (m *made) refusal(g *relay.Graph, call relay.NodeID) error {
	n := &g.Nodes[call]
	if _, said := m.said.Operators[n.Op]; !said {
		return fmt.Errorf("its file does not name %s", n.Op)
	}
	if err := isFloat32(n.Type); err != nil {
		return err
	}
	for _, in := range n.Inputs {
		if err := isFloat32(g.Nodes[in].Type); err != nil {
			return err
		}
	}
	return nil
}

// isFloat32 says what is wrong with a type for a speed in operations of float32; nil for nothing.
func isFloat32(t *relay.Type) error {
	switch {
	case t == nil:
		return errors.New("its type is not known")
	case t.Kind == relay.TypeTuple:
		for _, field := range t.Fields {
			if err := isFloat32(field); err != nil {
				return err
			}
		}
		return nil
	case t.Kind != relay.TypeTensor || t.DType != "float32":
		return fmt.Errorf("it computes with float32 alone, this is %s", t)
	}
	if _, known := t.NumBytes(); !known {
		return fmt.Errorf("%s has no size that is known", t)
	}
	return nil
}

// remote is a made one on a device beside the processor.
type remote struct {
	made
	byoc.KnownCopies
	device string
}

// Device implements byoc.Remote.
func (r *remote) Device() string { return r.device }

// Hardware implements byoc.Remote.
func (r *remote) Hardware() string { return "" }

// Memory implements byoc.Remote: its declaration has it.
func (r *remote) Memory() int64 { return 0 }

// MeasureCopies implements byoc.Remote: there is nothing to measure, and nobody asks, since copies are declared.
func (r *remote) MeasureCopies(int64) (to, from []float64, err error) {
	return nil, nil, fmt.Errorf("the device %s is declared", r.device)
}
