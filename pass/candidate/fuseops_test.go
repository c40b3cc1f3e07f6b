// SPDX-License-Identifier: Apache-2.0

package candidate

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/relay"
)

// recorded is a graph with the groups that TVM 0.19's FuseOps made of it (testdata/fuseops.py writes the files).
type recorded struct {
	g        *relay.Graph
	patterns map[string]OpPattern
	groups   [][]relay.NodeID // operators only, those of at least two
}

func readRecorded(t *testing.T, path string) *recorded {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	r := &recorded{patterns: map[string]OpPattern{}}
	m := relay.NewGraph("main")
	groups := map[string][]relay.NodeID{}
	last := relay.NoNode
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		require.Len(t, f, 7, path)
		var inputs []relay.NodeID
		if f[5] != "-" {
			for _, in := range strings.Split(f[5], ",") {
				inputs = append(inputs, relay.NodeID(number(t, in)))
			}
		}
		typ := recordedType(t, f[4])
		switch f[1] {
		case "var":
			last = m.Var(typ.Shape, "float32")
		case "const":
			last = m.Const(typ.Shape, "float32")
		case "tuple":
			last = m.Tuple(inputs...)
		case "get":
			last = m.Get(inputs[0], number(t, f[2]))
		case "call":
			last = m.Call(f[2], typ, nil, inputs...)
			r.patterns[f[2]] = OpPattern(number(t, f[3]))
			groups[f[6]] = append(groups[f[6]], last)
		default:
			t.Fatalf("%s: %q", path, line)
		}
		require.Equal(t, f[0], strconv.Itoa(int(last)))
	}
	r.g = m.Finish(last)
	for _, group := range groups {
		if len(group) > 1 {
			r.groups = append(r.groups, group)
		}
	}
	sortGroups(r.groups)
	return r
}

func number(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

func recordedType(t *testing.T, s string) *relay.Type {
	if strings.Contains(s, ";") {
		var fields []*relay.Type
		for _, part := range strings.Split(s, ";") {
			fields = append(fields, recordedType(t, part))
		}
		return relay.TupleOf(fields...)
	}
	var shape []int64
	if s != "scalar" {
		for _, part := range strings.Split(s, "x") {
			shape = append(shape, int64(number(t, part)))
		}
	}
	return relay.Tensor("float32", shape...)
}

func sortGroups(groups [][]relay.NodeID) {
	slices.SortFunc(groups, slices.Compare)
}

// TestGroupsAreThoseOfFuseOps holds the groups against what TVM made of real networks and of random graphs.
func TestGroupsAreThoseOfFuseOps(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/fuseops/*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 15)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			r := readRecorded(t, file)
			p := newProposer(r.g, []byoc.Backend{tvm},
				Options{OpPattern: func(op string) OpPattern { return r.patterns[op] }})
			require.NoError(t, p.classify())
			var groups [][]relay.NodeID
			for _, group := range p.fuse() {
				require.NoError(t, Check(r.g, group))
				group = slices.DeleteFunc(group, func(v relay.NodeID) bool { return !IsOperator(&r.g.Nodes[v]) })
				if len(group) > 1 {
					groups = append(groups, group)
				}
			}
			sortGroups(groups)
			require.Equal(t, r.groups, groups)
		})
	}
}

// fusedOf is what FuseOps would make of a graph.
func fusedOf(t *testing.T, g *relay.Graph) [][]relay.NodeID {
	t.Helper()
	p := newProposer(g, []byoc.Backend{tvm}, Options{OpPattern: patterns})
	require.NoError(t, p.classify())
	return p.fuse()
}

// An anchor is fused only if every edge on every way to its post-dominator is elementwise: here one of the ways is
// broadcast.
func TestAnAnchorStaysApartFromWhatIsBroadcastOnTheWay(t *testing.T) {
	t.Parallel()
	for _, broadcast := range []bool{false, true} {
		small, large := relay.Tensor("float32", shape...), relay.Tensor("float32", shape...)
		if broadcast {
			small = relay.Tensor("float32", 1, 8, 1, 1)
		}
		m := relay.NewGraph("main")
		c := m.Call("nn.conv2d", small, nil, m.Var(small.Shape, "float32"), m.Const([]int64{8, 8, 1, 1}, "float32"))
		r := m.Call("nn.relu", small, nil, c)
		b := m.Call("add", large, nil, r, m.Const(large.Shape, "float32"))
		e := m.Call("exp", small, nil, c)
		top := m.Call("multiply", large, nil, b, e)
		want := [][]relay.NodeID{{c, r, b, e, top}}
		if broadcast {
			want[0] = want[0][1:]
		}
		require.Equal(t, want, fusedOf(t, m.Finish(top)), "broadcast %v", broadcast)
	}
}

// FuseOps goes through no projection of a tuple that holds a tuple.
func TestProjectionsOfNestedTuplesAreNotFused(t *testing.T) {
	t.Parallel()
	for _, nested := range []bool{false, true} {
		m := relay.NewGraph("main")
		x := m.Var(shape, "float32")
		other := x
		if nested {
			other = m.Tuple(x, x)
		}
		first := m.Get(m.Tuple(m.Call("exp", act, nil, x), other), 0)
		groups := fusedOf(t, m.Finish(m.Call("nn.relu", act, nil, first)))
		joined := slices.ContainsFunc(groups, func(group []relay.NodeID) bool { return slices.Contains(group, first) })
		require.Equal(t, !nested, joined, "nested %v: %v", nested, groups)
	}
}
