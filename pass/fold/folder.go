// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"errors"
	"fmt"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/relay"
)

// folder evaluates the nodes of one graph in order, and puts constants in their place in a rewriting of it.
type folder struct {
	// stepwise says that a front end has its expressions folded one after the other, and gives back what was folded with
	// spans, in new expressions: a constant that shares its memory with an equal one stays then, or all that was
	// computed of it would be there twice.
	stepwise bool
	g        *relay.Graph
	r        *relay.Rewriter
	values   []value // by NodeID, as far as the graph has been evaluated
	frozen   []bool  // by ScopeID: the body of a Primitive function, which FoldConstant does not enter
	typeOf   func(relay.NodeID) (*relay.Type, error)
	made     []*bridge.Object
	shelf    shelf
	folded   int
	left     int // see Report
}

func newFolder(g *relay.Graph) *folder {
	return &folder{g: g, r: relay.NewRewriter(g), shelf: newShelf(),
		typeOf: func(id relay.NodeID) (*relay.Type, error) { return g.Nodes[id].Type, nil }}
}

// release gives back what the folder made; what was built of it lives on in TVM.
func (f *folder) release() {
	f.r.Release()
	for _, o := range f.made {
		o.Release()
	}
	f.made = nil
}

// run evaluates the nodes that have come to the graph since it last ran. A folder that is learning evaluates nothing
// and only takes notice of the constants that there are.
func (f *folder) run(learning bool) error {
	for len(f.values) < len(f.g.Nodes) {
		id := relay.NodeID(len(f.values))
		v, err := f.node(id, learning)
		if err != nil {
			return fmt.Errorf("folding constants: %s: %w", f.g.Line(id), err)
		}
		f.values = append(f.values, v)
	}
	return nil
}

func (f *folder) node(id relay.NodeID, learning bool) (value, error) {
	n := &f.g.Nodes[id]
	switch n.Kind {
	case relay.KindConstant:
		return f.constant(id)
	case relay.KindTuple:
		return f.tuple(n), nil
	case relay.KindTupleGetItem:
		return f.item(id, n), nil
	case relay.KindCall:
		if learning || n.Callee != relay.NoNode || f.isFrozen(n.Scope) {
			return value{}, nil
		}
		return f.call(id, n)
	case relay.KindIf:
		f.leave(n.Inputs[0])
	case relay.KindLet:
		f.leave(f.g.Scopes[n.Nested[0]].Root)
	}
	return value{}, nil
}

// leave takes notice of a form that TVM sees through if that node is a constant.
func (f *folder) leave(id relay.NodeID) {
	if f.values[id].known() {
		f.left++
	}
}

func (f *folder) isFrozen(s relay.ScopeID) bool {
	for len(f.frozen) < len(f.g.Scopes) {
		owner := f.g.Scopes[len(f.frozen)].Owner
		f.frozen = append(f.frozen, owner != relay.NoNode && isSet(f.g.Nodes[owner].FuncAttrs["Primitive"]))
	}
	for ; s != relay.NoScope; s = f.g.Scopes[s].Parent {
		if f.frozen[s] {
			return true
		}
	}
	return false
}

// constant gives a constant's tensor, which stays where it is: the graph keeps it alive. One that equals another is
// replaced by that.
func (f *folder) constant(id relay.NodeID) (value, error) {
	array, err := f.g.Tensor(id)
	if err != nil {
		return value{}, err
	}
	defer array.Release()
	if array.Device() != bridge.CPU() || !array.Contiguous() || itemSize(array.DType().String()) == 0 {
		return value{}, nil
	}
	v, err := tensorOf(array)
	if err != nil || f.isFrozen(f.g.Nodes[id].Scope) {
		return v, err
	}
	first, found := f.shelf.equal(v.tensor, func() (*bridge.Object, error) { return f.r.Expr(id) })
	if found && !(f.stepwise && &first.tensor.data[0] == &v.tensor.data[0]) {
		v = value{tensor: first.tensor}
		f.r.Replace(id, nil, func([]*bridge.Object) (*bridge.Object, error) { return first.expr() })
	}
	return v, nil
}

// tensorOf is a view of an NDArray that somebody else keeps alive.
func tensorOf(array *bridge.NDArray) (value, error) {
	data, err := array.Memory()
	if err != nil {
		return value{}, err
	}
	return value{tensor: &Tensor{DType: array.DType().String(), Shape: array.Shape(), data: data}}, nil
}

func (f *folder) tuple(n *relay.Node) value {
	fields := make([]value, len(n.Inputs))
	for i, in := range n.Inputs {
		if fields[i] = f.values[in]; !fields[i].known() {
			return value{}
		}
	}
	return value{fields: fields}
}

// item is a field of a tuple, also of one the other fields of which are not known.
func (f *folder) item(id relay.NodeID, n *relay.Node) value {
	var v value
	from := n.Inputs[0]
	switch tuple := &f.g.Nodes[from]; {
	case f.values[from].fields != nil && n.Index < len(f.values[from].fields):
		v = f.values[from].fields[n.Index]
	case tuple.Kind == relay.KindTuple && n.Index < len(tuple.Inputs):
		v = f.values[tuple.Inputs[n.Index]]
	}
	if v.known() {
		f.replace(id, v)
	}
	return v
}

func (f *folder) call(id relay.NodeID, n *relay.Node) (value, error) {
	if len(n.Inputs) == 0 {
		return value{}, nil // zeros of a shape: TVM leaves them, too, since the tensor would be larger than the call
	}
	if n.Op == "shape_of" || n.Op == "ndarray_size" {
		return f.shape(id, n)
	}
	args := make([]value, len(n.Inputs))
	for i, in := range n.Inputs {
		if args[i] = f.values[in]; !args[i].known() {
			return value{}, nil
		}
	}
	if err := bridge.CheckSignals(); err != nil {
		return value{}, err
	}
	if f.stepwise && keptByTVM(n.Op) {
		return value{}, nil // front ends ask what TVM would fold
	}
	v, err := evaluate(n.Op, args, n.Attrs)
	switch {
	case errors.Is(err, errLeft):
		if !keptByTVM(n.Op) {
			f.left++
		}
		return value{}, nil
	case err != nil:
		return value{}, err
	}
	f.replace(id, v)
	return v, nil
}

// shape evaluates the operators that ask for a shape, whether the tensor's content is known or not. TVM takes a
// scalar's for something else, which is left to it.
func (f *folder) shape(id relay.NodeID, n *relay.Node) (value, error) {
	t, err := f.typeOf(n.Inputs[0])
	if err != nil {
		return value{}, err
	}
	dtype, ok := n.Attrs.String("dtype")
	if !ok || t == nil || t.Kind != relay.TypeTensor || len(t.Shape) == 0 {
		f.left++
		return value{}, nil
	}
	count, ok := elements(t.Shape)
	if !ok {
		return value{}, nil // a dimension that only a run will tell
	}
	values, shape := t.Shape, []int64{int64(len(t.Shape))}
	if n.Op == "ndarray_size" {
		values, shape = []int64{count}, []int64{}
	}
	made, err := fromIntegers(dtype, shape, values)
	if errors.Is(err, errLeft) {
		f.left++
		return value{}, nil
	}
	v := value{tensor: made}
	f.replace(id, v)
	return v, err
}

// keptByTVM says that FoldConstant does not evaluate an operator: those of its quantisation dialect (Normalise does not
// ask for them), those that compute nothing, and dropout.
func keptByTVM(op string) bool {
	dialect, _, dotted := strings.Cut(op, ".")
	switch dialect {
	case "qnn", "vm", "memory":
		return dotted
	}
	return op == "device_copy" || op == "nn.dropout" || op == "call_lowered"
}

// replace has a node's value stand for it, if anybody asks for it.
func (f *folder) replace(id relay.NodeID, v value) {
	f.folded++
	f.r.Replace(id, nil, func([]*bridge.Object) (*bridge.Object, error) { return f.expression(v) })
}

// expression makes constants of a value. A tensor's data moves into TVM's memory.
func (f *folder) expression(v value) (*bridge.Object, error) {
	var made *bridge.Object
	var err error
	if v.tensor == nil {
		fields := make([]*bridge.Object, len(v.fields))
		for i, field := range v.fields {
			if fields[i], err = f.expression(field); err != nil {
				return nil, err
			}
		}
		made, err = relay.NewTuple(fields)
	} else {
		first, found := f.shelf.equal(v.tensor, func() (*bridge.Object, error) { return made, nil })
		if found {
			v.tensor.data = first.tensor.data
			return first.expr()
		}
		made, err = newConstant(v.tensor)
	}
	if err == nil {
		f.made = append(f.made, made)
	}
	return made, err
}

func newConstant(t *Tensor) (*bridge.Object, error) {
	dtype, err := bridge.ParseDataType(t.DType)
	if err != nil {
		return nil, err
	}
	array, err := bridge.Empty(t.Shape, dtype, bridge.CPU())
	if err != nil {
		return nil, err
	}
	defer array.Release()
	to, err := array.Memory()
	if err != nil {
		return nil, err
	}
	copy(to, t.data)
	made, err := relay.NewConstant(array)
	if err != nil {
		return nil, err
	}
	t.data = to // the folder keeps the constant as long as the tensor
	return made, nil
}
