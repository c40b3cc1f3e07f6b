// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// library is a backend with the given patterns; without any it takes everything, as TVM does.
type library struct {
	name     string
	patterns []byoc.Pattern
}

func (l library) Name() string             { return l.name }
func (l library) Description() string      { return "for tests" }
func (l library) Level() byoc.Level        { return byoc.OperatorLevel }
func (l library) Patterns() []byoc.Pattern { return l.patterns }
func (l library) TakesAnything() bool      { return l.patterns == nil }
func (l library) MergesRegions() bool      { return l.patterns != nil }
func (l library) Probe() byoc.Probe        { return byoc.Probe{Usable: true} }
func (l library) Install() error           { return nil }
func (l library) Compiler() string {
	if l.patterns == nil {
		return ""
	}
	return l.name
}

// convolutions is a library with convolutions, their epilogues and concatenation.
func convolutions() library {
	conv := relay.Op("nn.conv2d", relay.Wildcard(), relay.IsConstant())
	bias := relay.Op("add", conv, relay.IsConstant())
	any := relay.Wildcard
	return library{"dnnl", []byoc.Pattern{
		{Composite: "dnnl.conv2d_bias_sum_relu", Shape: relay.Op("nn.relu", relay.Op("add", bias, any()))},
		{Composite: "dnnl.conv2d_bias_relu", Shape: relay.Op("nn.relu", bias)},
		{Composite: "dnnl.conv2d_bias", Shape: bias},
		{Composite: "dnnl.conv2d", Shape: conv, Limits: func(g *relay.Graph, m *relay.Match) error {
			if shape := g.Nodes[m.Inputs[0]].Type.Shape; len(shape) > 1 && shape[1] == 3 {
				return errors.New("three input channels")
			}
			return nil
		}},
		{Composite: "dnnl.concatenate", Shape: relay.Op("concatenate", relay.TuplePattern(any(), any())), Bare: true},
	}}
}

// patterns are TVM's TOpPattern of the operators used here.
func patterns(op string) OpPattern {
	p, ok := map[string]OpPattern{"nn.conv2d": OutEWiseFusable, "nn.dense": OutEWiseFusable, "add": Broadcast,
		"multiply": Broadcast, "nn.relu": ElemWise, "exp": ElemWise, "reshape": Injective, "transpose": Injective,
		"concatenate": Injective, "split": Injective, "mean": CommReduce, "nn.max_pool2d": OutEWiseFusable,
		"nn.softmax": Opaque}[op]
	if !ok {
		return Opaque
	}
	return p
}

var (
	tvm   = library{name: "tvm"}
	act   = relay.Tensor("float32", 1, 8, 4, 4)
	shape = []int64{1, 8, 4, 4}
)

func propose(t *testing.T, g *relay.Graph, backends ...byoc.Backend) *Set {
	t.Helper()
	set, err := Propose(g, backends, Options{OpPattern: patterns})
	require.NoError(t, err)
	for _, c := range set.Candidates {
		require.NoError(t, Check(g, c.Nodes), "%v", c)
		require.Equal(t, c.Nodes[len(c.Nodes)-1], c.Root)
		require.Equal(t, c.Free, c.Key == "")
	}
	return set
}

// list writes the candidates one a line: backend, nodes, inputs, constants, composite.
func list(set *Set) string {
	var b strings.Builder
	for _, c := range set.Candidates {
		fmt.Fprintf(&b, "%s %v <- %v %v", c.Backend, c.Nodes, c.Inputs, c.Constants)
		if c.Composite != "" {
			fmt.Fprintf(&b, " %s", c.Composite)
		}
		if c.Bare {
			b.WriteString(" bare")
		}
		if c.Free {
			b.WriteString(" free")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func conv(m *relay.GraphMaker, x relay.NodeID) relay.NodeID {
	return m.Call("nn.conv2d", act, nil, x, m.Const([]int64{8, 8, 3, 3}, "float32"))
}

func TestCandidatesSayTheirKernel(t *testing.T) {
	t.Parallel()
	kernels := convolutions()
	kernels.patterns = kernels.patterns[3:4]
	kernels.patterns[0].Kernel, kernels.patterns[0].Reassociates, kernels.patterns[0].Grouped = "winograd", true, true
	m := relay.NewGraph("main")
	g := m.Finish(conv(m, m.Var(shape, "float32")))
	for _, c := range propose(t, g, tvm, kernels).Candidates {
		require.Equal(t, c.Backend == "dnnl", c.Kernel == "winograd" && c.Reassociates && c.Grouped, c.Label(g))
	}
}

func TestConvolutionWithEpilogue(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	c := conv(m, x) // %2, weight %1
	bias := m.Const([]int64{8, 1, 1}, "float32")
	b := m.Call("add", act, nil, c, bias) // %4
	r := m.Call("nn.relu", act, nil, b)   // %5
	set := propose(t, m.Finish(r), tvm, convolutions())
	require.Equal(t, strings.TrimLeft(`
tvm [2] <- [0] [1]
dnnl [2] <- [0] [1] dnnl.conv2d
tvm [2 4] <- [0] [1 3]
tvm [4] <- [2] [3]
dnnl [2 4] <- [0] [1 3] dnnl.conv2d_bias
tvm [2 4 5] <- [0] [1 3]
tvm [4 5] <- [2] [3]
tvm [5] <- [4] []
dnnl [2 4 5] <- [0] [1 3] dnnl.conv2d_bias_relu
`, "\n"), list(set))
	require.Empty(t, set.Refusals)
	require.Equal(t, set.Candidates[2].Key, set.Candidates[4].Key, "a mirror has the key of what it mirrors")
	require.Equal(t, "dnnl.conv2d_bias_relu %5 on dnnl", set.Candidates[8].Label(set.Graph))
	require.Equal(t, "nn.relu and 2 before it %5 on tvm", set.Candidates[5].Label(set.Graph))
	require.Less(t, 9*set.Candidates[5].Rank, set.Candidates[8].Rank)
}

func TestLimitsAreReported(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var([]int64{1, 3, 4, 4}, "float32")
	g := m.Finish(m.Call("nn.conv2d", act, nil, x, m.Const([]int64{8, 3, 3, 3}, "float32")))
	set := propose(t, g, tvm, convolutions())
	require.Equal(t, "tvm [2] <- [0] [1]\n", list(set))
	require.Equal(t, []Refusal{{Node: 2, Backend: "dnnl", Composite: "dnnl.conv2d", Reason: "three input channels"}},
		set.Refusals)
}

func TestRefusalsOfWhatIsTakenAnotherWayAreNotReported(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var([]int64{1, 3, 4, 4}, "float32")
	g := m.Finish(m.Call("nn.conv2d", act, nil, x, m.Const([]int64{8, 3, 3, 3}, "float32")))
	l := convolutions()
	l.patterns = append(l.patterns, byoc.Pattern{Composite: "dnnl.any_conv2d", Shape: relay.Op("nn.conv2d")})
	set := propose(t, g, tvm, l)
	require.Contains(t, list(set), "dnnl [2] <- [0] [1] dnnl.any_conv2d\n")
	require.Empty(t, set.Refusals)
}

func TestValueThatIsUsedTwiceEndsACandidate(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	r := m.Call("nn.relu", act, nil, conv(m, x)) // %2 %3
	c := conv(m, r)                              // %5
	b := m.Call("add", act, nil, c, m.Const([]int64{8, 1, 1}, "float32"))
	s := m.Call("add", act, nil, b, r)
	set := propose(t, m.Finish(m.Call("nn.relu", act, nil, s)), tvm, convolutions())
	for _, c := range set.Candidates {
		for _, v := range c.Nodes {
			require.False(t, v == r && c.Root != r, "%%%d leaks out of %v", r, c)
		}
	}
	require.Contains(t, list(set), "dnnl [5 7 8 9] <- [3] [4 6] dnnl.conv2d_bias_sum_relu\n")
	require.Contains(t, list(set), "tvm [5 7 8 9] <- [3] [4 6]\n")
	require.Contains(t, list(set), "tvm [8 9] <- [7 3] []\n", "what is left of TVM's group after conv2d_bias")
}

func TestConcatenateTakesItsTuple(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	a := m.Call("exp", act, nil, x)
	b := m.Call("nn.softmax", act, nil, x)
	tuple := m.Tuple(a, b)
	c := m.Call("concatenate", relay.Tensor("float32", 1, 16, 4, 4), nil, tuple)
	set := propose(t, m.Finish(c), tvm, convolutions())
	require.Equal(t, strings.TrimLeft(`
tvm [1] <- [0] []
tvm [2] <- [0] []
tvm [3] <- [1 2] [] free
tvm [1 3 4] <- [0 2] []
tvm [3 4] <- [1 2] []
dnnl [3 4] <- [1 2] [] dnnl.concatenate bare
`, "\n"), list(set))
}

func TestProjectionsStayOutsideOfGroups(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	half := relay.Tensor("float32", 1, 4, 4, 4)
	s := m.Call("split", relay.TupleOf(half, half), nil, x)
	p0, p1 := m.Get(s, 0), m.Get(s, 1)
	a := m.Call("exp", half, nil, p0)
	set := propose(t, m.Finish(m.Call("add", half, nil, a, p1)), tvm)
	require.Contains(t, list(set), "tvm [2] <- [1] [] free\n")
	for _, c := range set.Candidates {
		for _, in := range c.Inputs {
			if !c.Free {
				require.Equal(t, relay.TypeTensor, set.Graph.Nodes[in].Type.Kind, "%v is handed a tuple", c.Nodes)
			}
		}
	}
}

func TestWhatIsPartitionedAlreadyIsLeftAlone(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	p := m.LocalVar(shape, "float32")
	body := conv(m, p)
	f := m.Function([]relay.NodeID{p}, body, map[string]string{"Compiler": "dnnl", "Primitive": "1"})
	g := m.Finish(m.Call("nn.relu", act, nil, m.CallFunction(f, act, x)))
	set := propose(t, g, tvm, convolutions())
	require.Equal(t, strings.TrimLeft(`
tvm [3] <- [1] [2] free
tvm [5] <- [0] [] free
tvm [6] <- [5] []
`, "\n"), list(set))
	require.Empty(t, set.Refusals)

	m = relay.NewGraph("tvmgen_default_dnnl_main_0")
	m.Attr("Compiler", "dnnl")
	set = propose(t, m.Finish(conv(m, m.Var(shape, "float32"))), tvm, convolutions())
	require.Equal(t, "tvm [2] <- [0] [1] free\n", list(set))
}

func TestControlFlowAndReferencesStayOnTVM(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	condition := m.Var(nil, "bool")
	then := m.Call("nn.relu", act, nil, conv(m, x))
	otherwise := m.Call("exp", act, nil, x)
	choice := m.If(condition, then, otherwise, act)
	g := m.Finish(m.Call("nn.relu", act, nil, choice))
	set := propose(t, g, tvm, convolutions())
	free := 0
	for _, c := range set.Candidates {
		if c.Free {
			free++
			require.Equal(t, []relay.NodeID{choice}, c.Nodes)
		}
		require.LessOrEqual(t, len(c.Nodes), 2)
	}
	require.Equal(t, 1, free)
	require.Contains(t, list(set), "dnnl.conv2d", "branches are placed too")
}

func TestDynamicShapesAreNotMeasured(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	any := []int64{relay.AnyDim, 8, 4, 4}
	x := m.Var(any, "float32")
	c := m.Call("nn.conv2d", relay.Tensor("float32", any...), nil, x, m.Const([]int64{8, 8, 3, 3}, "float32"))
	set := propose(t, m.Finish(c), tvm, convolutions())
	require.Equal(t, "tvm [2] <- [0] [1] free\n", list(set))
	require.Equal(t, "a dimension is not known before the program runs", set.Refusals[0].Reason)
}

func TestUntypedGraphsAreRefused(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	g := m.Finish(m.Call("nn.relu", act, nil, m.Var(nil, "")))
	_, err := Propose(g, []byoc.Backend{tvm}, Options{})
	require.ErrorContains(t, err, "run InferType first")
}

func TestCheck(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	a := m.Call("exp", act, nil, x)
	b := m.Call("nn.relu", act, nil, a)
	c := m.Call("add", act, nil, a, b)
	g := m.Finish(m.Call("nn.relu", act, nil, c))
	for want, nodes := range map[string][]relay.NodeID{
		"":                    {a, b, c},
		"at least one node":   {},
		"escapes":             {a, b},
		"not ascending":       {b, a},
		"is no node":          {a, 99},
		"not placeable":       {x, a},
		"%2 escapes: %3 uses": {b, 4},
	} {
		err := Check(g, nodes)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

func TestCheckSeveral(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	a := m.Call("exp", act, nil, x)
	b := m.Call("nn.relu", act, nil, a)
	c := m.Call("add", act, nil, a, b)
	split := m.Call("split", relay.TupleOf(act, act), nil, c)
	first := m.Get(split, 0)
	g := m.Finish(m.Call("add", act, nil, first, m.Get(split, 1)))
	for want, nodes := range map[string][]relay.NodeID{
		"":                                     {a, b},
		"at least one node":                    {},
		"not ascending":                        {b, a},
		"is no node":                           {a, 99},
		"not placeable":                        {x, a},
		"%1 comes back from outside: %3 needs": {a, c},
		"the exit %4 is no tensor":             {a, b, c, split, first},
	} {
		err := CheckSeveral(g, nodes)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// engine proposes what it is told to.
type engine struct {
	library
	proposals []byoc.Proposal
}

func (e engine) Propose(*relay.Graph, []byoc.Learnt) []byoc.Proposal { return e.proposals }
func (e engine) TakesAnything() bool                                 { return false }
func (e engine) Compiler() string                                    { return e.name }

// What an engine proposes may have several exits, where it becomes a function of its own that is no composite one.
func TestProposalsWithSeveralExits(t *testing.T) {
	t.Parallel()
	m := relay.NewGraph("main")
	x := m.Var(shape, "float32")
	a := m.Call("exp", act, nil, x)
	b := m.Call("nn.relu", act, nil, a)
	c := m.Call("exp", act, nil, b)
	back := m.Call("tanh", act, nil, m.Call("nn.softmax", act, nil, c))
	g := m.Finish(m.Call("add", act, nil, m.Call("add", act, nil, back, b), a))
	both := func(bare bool, composite string, nodes ...relay.NodeID) *Set {
		e := engine{library{name: "engine"}, []byoc.Proposal{{Bare: bare, Composite: composite, Nodes: nodes}}}
		set, err := Propose(g, []byoc.Backend{tvm, e}, Options{OpPattern: patterns})
		require.NoError(t, err)
		return set
	}
	found := func(set *Set) []Candidate {
		return slices.DeleteFunc(slices.Clone(set.Candidates), func(c Candidate) bool { return len(c.Exits) == 0 })
	}
	one := found(both(true, "", a, b, c))
	require.Len(t, one, 1, "and none on TVM, whose kernels have one exit")
	require.Equal(t, "engine", one[0].Backend)
	require.Equal(t, []relay.NodeID{a, b, c}, one[0].Exits)
	require.Equal(t, one[0].Exits, one[0].Results())
	require.Equal(t, c, one[0].Root)
	require.Equal(t, []relay.NodeID{x}, one[0].Inputs)
	require.Contains(t, one[0].Label(g), "with 3 exits")
	require.Empty(t, found(both(false, "", a, b, c)))
	require.Empty(t, found(both(true, "engine.chain", a, b, c)))
	require.Empty(t, found(both(true, "", a, c)), "a value comes back from outside")

	// What is given to the outside is a part of what is computed.
	require.NotEqual(t, g.Key(one[0].Nodes, c, relay.KeyOptions{}), one[0].Key)
	require.NotEqual(t, g.KeyOfSeveral(one[0].Nodes, []relay.NodeID{b, c}, relay.KeyOptions{}), one[0].Key)
}
