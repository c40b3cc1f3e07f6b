// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"fmt"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// NotWholeError says why a network cannot be run as a whole: TVM's graph executor, which runs networks here, does not
// take it, or TVM cannot build it. Its parts can be placed all the same (network.Place).
type NotWholeError struct {
	// Where is the expression in question ("%12"), "" for the module, "TVM" where it cannot build it, and Reason what
	// is the matter.
	Where, Reason string
}

func (e *NotWholeError) Error() string {
	where := e.Where
	if where == "" {
		where = "the module"
	}
	return fmt.Sprintf("the network cannot be run as a whole: %s %s", where, e.Reason)
}

// Whole is Network.Whole, for a module of which nothing else is known. What is not whole, TVM's virtual machine runs.
func Whole(mod *bridge.Object) error {
	m, err := relay.Read(mod)
	if err != nil {
		return err
	}
	defer m.Release()
	return CheckWhole(m)
}

func CheckWhole(m *relay.Module) error {
	functions := map[string]*relay.Graph{}
	for _, g := range m.Functions {
		functions[g.Name] = g
	}
	main := functions["main"]
	if main == nil {
		return &NotWholeError{"", "has no function main"}
	}
	for i := range main.Nodes {
		if reason := notStraight(&main.Nodes[i], functions); reason != "" {
			return &NotWholeError{fmt.Sprintf("%%%d", i), reason}
		}
	}
	return nil
}

// notStraight says why the graph executor does not run an expression; "" where it does.
func notStraight(n *relay.Node, functions map[string]*relay.Graph) string {
	switch n.Kind {
	case relay.KindVar, relay.KindConstant, relay.KindCall, relay.KindTuple, relay.KindTupleGetItem:
		if n.Type == nil {
			return ""
		}
		if n.Type.Kind == relay.TypeFunction {
			return "is a loop, or a function within the network"
		}
		if _, known := n.Type.NumBytes(); !known {
			return "has the type " + n.Type.String() + ", which is not fixed before the network runs"
		}
	case relay.KindIf:
		return "is a branch"
	case relay.KindGlobalVar:
		if f := functions[n.Name]; f == nil || f.Attrs["Compiler"] == "" && !relay.IsSet(f.Attrs["Primitive"]) {
			return "calls the function " + n.Name +
				" of the module: put it through Normalise first (collage.transform.Normalise), which " +
				"puts functions in the place of their calls, but for those that come back to themselves"
		}
	case relay.KindFunction:
		if n.FuncAttrs["Primitive"] == "" && n.FuncAttrs["Compiler"] == "" && n.FuncAttrs["Composite"] == "" {
			return "is a function within the network"
		}
	default:
		return "is control flow, a reference or a binding"
	}
	return ""
}
