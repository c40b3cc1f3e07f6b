// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/propose"
	"github.com/collage-tvm/collage/relay"
)

// Limits are what a kind of device takes of TVM's kernels.
type Limits struct {
	// Types are the element types of tensors that every device of the kind computes with.
	Types []string
	// Title is what people call the kind: "OpenCL".
	Title string
	// Misnamed are operators for which TVM writes calls of functions that the kind has under another name.
	Misnamed []string
}

// elsewhere begins the names of operators that are no computation, or that TVM makes of what it runs on the host.
var elsewhere = []string{"annotation.", "device_copy", "dyn.", "memory.", "on_device", "random.", "vm.", "contrib."}

// Refusal says why an operator cannot run on such a device; nil where it can.
func (l *Limits) Refusal(g *relay.Graph, call relay.NodeID) error {
	n := &g.Nodes[call]
	for _, prefix := range elsewhere {
		if strings.HasPrefix(n.Op, prefix) {
			return fmt.Errorf("%s runs on the host", n.Op)
		}
	}
	if slices.Contains(l.Misnamed, n.Op) {
		return fmt.Errorf("TVM calls a function for %s that %s has under another name", n.Op, l.Title)
	}
	if err := l.computes(n.Type); err != nil {
		return err
	}
	for _, arg := range n.Inputs {
		if err := l.computes(g.Nodes[arg].Type); err != nil {
			return err
		}
	}
	return nil
}

// computes says what of a type keeps a tensor off the device; nil for nothing.
func (l *Limits) computes(t *relay.Type) error {
	switch {
	case t == nil:
		return nil
	case t.Kind == relay.TypeTuple:
		for _, field := range t.Fields {
			if err := l.computes(field); err != nil {
				return err
			}
		}
	case t.Kind == relay.TypeTensor && !slices.Contains(l.Types, t.DType):
		return fmt.Errorf("%s is not computed with on every %s device", t.DType, l.Title)
	case t.Kind == relay.TypeTensor && slices.Contains(t.Shape, 0):
		return errors.New("a tensor without elements has no memory on the device")
	}
	return nil
}

// Rules are the candidates of TVM's kernels: each operator by itself, and what TVM fuses.
func (l *Limits) Rules() *byoc.Rules {
	return &byoc.Rules{Supports: l.Refusal, Style: byoc.TVMFusion}
}

// Propose gives the greatest regions that can run on the device, and their parts between post-dominators, without
// operators that were learnt to fail there by themselves; `name` is the backend's.
func (l *Limits) Propose(name string, g *relay.Graph, learnt []byoc.Learnt) []byoc.Proposal {
	failed := map[relay.NodeID]bool{}
	for _, one := range learnt {
		if one.Backend == name && math.IsInf(one.Milliseconds, 1) && len(one.Nodes) == 1 {
			failed[one.Nodes[0]] = true
		}
	}
	takes := func(v relay.NodeID) bool { return !failed[v] && l.Refusal(g, v) == nil }
	return propose.Regions(g, takes, propose.Limit)
}
