// SPDX-License-Identifier: Apache-2.0

package graphlevel

import (
	"math"
	"slices"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/bound"
	"github.com/collage-tvm/collage/pass/candidate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/relay"
)

// Adds is what a function's node adds to the square of how far outputs are off, relatively, where it is computed in a
// precision, or Given; false where that is not known.
type Adds func(function int, v relay.NodeID, in byoc.Precision) (square float64, known bool)

// Given stands for a precision where a node's result is rounded to bytes for all who read it (byoc.GivesRounded): what
// that adds, whatever the node is computed in.
const Given byoc.Precision = "given"

// narrowings are what a node may add to the error by, in the order of parts.
func narrowings() []byoc.Precision { return append(byoc.Precisions()[1:], Given) }

// sensitivity is what is believed of how far off a network's outputs are, by which of its operators are computed in a
// narrower type. Rounding errors of different operators are independent, so their squares add up; what each operator
// adds is not known, only what all of a network's narrow operators add together, for each network that was measured.
// The operators' shares are those that explain all of these and differ as little as can be from equal ones
// (multiplicative algebraic reconstruction: Gordon, Bender, Herman 1970).
type sensitivity struct {
	space *genome.Space
	limit cost.Limit
	// in says of each function's candidates in which of byoc.Precisions they compute; 0 for the network's own type.
	in [][]int
	// given are the values that each function's candidates give rounded.
	given [][][]relay.NodeID
	// adds is what nodes are believed to add before anything was measured; nil for nothing.
	adds Adds
	// share is what each node adds to the square of the error where it is computed narrowly, by function and part.
	share [][]float64
	// seen are the networks that were measured.
	seen []measuredError
	// surprise is by which factor the square of the last of these that was believed to be allowed before it ran was
	// further off than was believed then; 0 where none was so. Of placements with a price for errors those are found
	// whose operators add more than is believed, and what is found next will be more of the same.
	surprise float64
	// caution is by which factor the square of one of these was further off than is believed now at most, or surprise; 1
	// where none was.
	caution float64
	// solve is place.Solve, but for tests.
	solve func(options []place.Option, tree *place.Tree) (*place.Solution, error)
}

// part is a node by one of narrowings: the node's number, and that of all nodes for each of these before it.
type part = int

// measuredError is what a network with these parts, by function, was found to be off by, squared.
type measuredError struct {
	parts  [][]part
	square float64
}

// Rounding is the square of what one rounding is off by on the average, relatively: what a share is believed to be
// before anything was measured. bfloat16 has eight bits; of bytes it is the 255th part of what numbers reach, which is
// said to be four times their deviation on both sides.
func Rounding(precision byoc.Precision) float64 {
	if precision != byoc.BF16 {
		return 8.0 / 255 * 8.0 / 255 / 12
	}
	return 0x1p-18 / 3
}

// newSensitivity gives nil where no error is limited, or nothing is computed narrowly.
func newSensitivity(space *genome.Space, limit cost.Limit, adds Adds) *sensitivity {
	if limit == (cost.Limit{}) {
		return nil
	}
	precision, backends := map[string]int{}, map[string]byoc.Backend{}
	for _, b := range space.Backends {
		precision[b.Name()], backends[b.Name()] = slices.Index(byoc.Precisions(), byoc.PrecisionOf(b)), b
	}
	n, some := &sensitivity{space: space, limit: limit, adds: adds, solve: place.Solve}, false
	for i := range space.Functions {
		f := &space.Functions[i]
		in, given := make([]int, len(f.Set.Candidates)), make([][]relay.NodeID, len(f.Set.Candidates))
		for k := range in {
			if c := &f.Set.Candidates[k]; !c.Free {
				in[k], given[k] = precision[c.Backend], byoc.GivenBy(backends[c.Backend], f.Set.Graph, c.Nodes)
			}
			some = some || in[k] > 0
		}
		n.in, n.given = append(n.in, in), append(n.given, given)
	}
	if !some {
		return nil
	}
	n.fit()
	return n
}

// squared is an error as something that adds up: a cosine of the angle is about the square of it already, and shares of
// rows add up as they are. A measure of the user's own is taken for a distance.
func (n *sensitivity) squared(e float64) float64 {
	if n.limit.Measure == cost.Cosine || n.limit.Measure == cost.Top1 {
		return e
	}
	return e * e
}

// parts are the operators of a function's candidate as far as they are computed narrowly: in bytes those that multiply,
// since what else is called so is done on sums of float32; and the values that it gives rounded.
func (n *sensitivity) parts(function, k int) []part {
	in := n.in[function][k]
	if in == 0 {
		return nil
	}
	set := n.space.Functions[function].Set
	var parts []part
	for _, v := range set.Candidates[k].Nodes {
		if op := &set.Graph.Nodes[v]; candidate.IsOperator(op) &&
			(byoc.Precisions()[in] != byoc.INT8 || bound.Multiplies(op.Op)) {
			parts = append(parts, (in-1)*len(set.Graph.Nodes)+int(v))
		}
	}
	for _, v := range n.given[function][k] {
		parts = append(parts, slices.Index(narrowings(), Given)*len(set.Graph.Nodes)+int(v))
	}
	return parts
}

// covered are the operators of a placement that are computed narrowly, by function.
func (n *sensitivity) covered(chosen [][]int) [][]part {
	parts := make([][]part, len(chosen))
	for i := range chosen {
		for _, k := range chosen[i] {
			parts[i] = append(parts[i], n.parts(i, k)...)
		}
	}
	return parts
}

func (n *sensitivity) sum(parts [][]part) float64 {
	sum := 0.0
	for i := range parts {
		for _, p := range parts[i] {
			sum += n.share[i][p]
		}
	}
	return sum
}

// observe takes in how far off a network was that ran.
func (n *sensitivity) observe(t *Trial) {
	if n == nil || t.Cost.Failed() || t.Cost.Network == nil || t.Cost.Network.Errors == nil {
		return
	}
	parts := n.covered(t.Placement.Chosen)
	if !slices.ContainsFunc(parts, func(list []part) bool { return len(list) > 0 }) {
		return
	}
	square := n.squared(t.Cost.Network.Errors.In(n.limit.Measure))
	if believed := n.sum(parts); len(n.seen) > 0 && believed > 0 && believed <= n.squared(n.limit.Most) {
		n.surprise = square / believed
	}
	n.seen = append(n.seen, measuredError{parts, square})
	n.fit()
}

// calm forgets the surprise; false where there is none.
func (n *sensitivity) calm() bool {
	if n == nil || n.surprise == 0 {
		return false
	}
	n.surprise = 0
	n.fit()
	return true
}

const (
	// fitRounds is how often all that was measured is gone through, fitDamping how far each of them is followed at a
	// time.
	fitRounds  = 200
	fitDamping = 0.5
	// steepest is how far a share is changed at most at a time: an error of 0 says that shares are small, not how
	// small.
	steepest = 100.0
	// explained is by which factor a measured squared error and the sum of its shares may be apart without operators
	// being told apart for it: that errors are independent is true on the average alone. Were each network explained to
	// the last digit, operators that no network had yet would look as if they added little, and those be taken next.
	explained = 1.2
	// mostCaution is by which factor the square is at most taken to be further off than what is believed.
	mostCaution = 2.0
	// leastShare is how small a share becomes at most, in parts of what it is believed to be before anything is
	// measured: errors of 0 (no answer changed, say) would have it vanish, and prices of errors would be without limit.
	leastShare = 1e-9
)

// fit finds the shares that explain what was measured.
func (n *sensitivity) fit() {
	n.share = make([][]float64, len(n.space.Functions))
	for i := range n.share {
		for _, narrow := range narrowings() {
			for v := range n.space.Functions[i].Set.Graph.Nodes {
				square, known := 0.0, false
				if n.adds != nil {
					square, known = n.adds(i, relay.NodeID(v), narrow)
				}
				if !known {
					square = Rounding(narrow)
				}
				n.share[i] = append(n.share[i], n.squared(math.Sqrt(square)))
			}
		}
	}
	least := make([][]float64, len(n.share))
	for i := range n.share {
		for _, share := range n.share[i] {
			least[i] = append(least[i], leastShare*share)
		}
	}
	n.scale(least)
	for range fitRounds {
		for _, m := range n.seen {
			ratio := unexplained(m.square / n.sum(m.parts))
			ratio = math.Pow(min(steepest, max(1/steepest, ratio)), fitDamping)
			for i := range m.parts {
				for _, p := range m.parts[i] {
					n.share[i][p] = max(least[i][p], ratio*n.share[i][p])
				}
			}
		}
	}
	n.caution = 1
	for _, m := range n.seen {
		if sum := n.sum(m.parts); sum > 0 {
			n.caution = max(n.caution, m.square/sum)
		}
	}
	n.caution = min(mostCaution, max(n.caution, n.surprise))
}

// narrowing is that of a part, by its place among narrowings.
func (n *sensitivity) narrowing(function int, of part) int {
	return of / len(n.space.Functions[function].Set.Graph.Nodes)
}

// scale multiplies all shares of a narrowing by the same, for each such that what was measured is explained best: what
// is believed of operators beforehand says well how much more one adds than another, and less well how much all do.
func (n *sensitivity) scale(least [][]float64) {
	kinds := len(narrowings())
	for range fitRounds {
		moved, weight := make([]float64, kinds), make([]float64, kinds)
		for _, m := range n.seen {
			sum, by := 0.0, make([]float64, kinds)
			for i := range m.parts {
				for _, p := range m.parts[i] {
					by[n.narrowing(i, p)] += n.share[i][p]
					sum += n.share[i][p]
				}
			}
			if sum == 0 {
				continue
			}
			off := math.Log(min(steepest, max(1/steepest, m.square/sum)))
			for kind := range by {
				moved[kind] += by[kind] / sum * off
				weight[kind] += by[kind] / sum
			}
		}
		for i := range n.share {
			for p := range n.share[i] {
				if kind := n.narrowing(i, p); weight[kind] > 0 {
					n.share[i][p] = max(least[i][p], n.share[i][p]*math.Exp(fitDamping*moved[kind]/weight[kind]))
				}
			}
		}
	}
}

// unexplained is by which factor a squared error is further off what is believed than independence explains.
func unexplained(ratio float64) float64 {
	switch {
	case ratio > explained:
		return ratio / explained
	case ratio < 1/explained:
		return ratio * explained
	}
	return 1
}

// margin is how much less than what is allowed is aimed at: what is believed is not exact.
const margin = 0.9

// aimed is the squared error that is aimed at, with so much of what is allowed: less where a network was further off
// than is believed now.
func (n *sensitivity) aimed(margin float64) float64 {
	return n.squared(margin*n.limit.Most) / max(1, n.caution)
}

// excess is how many times as far off as is allowed a placement is believed to be; 0 where nothing of it is narrow, or
// nothing is limited.
func (n *sensitivity) excess(p *genome.Placement) float64 {
	if n == nil {
		return 0
	}
	return n.excessOf(n.covered(p.Chosen))
}

func (n *sensitivity) excessOf(parts [][]part) float64 {
	sum := n.sum(parts)
	if sum == 0 {
		return 0
	}
	return n.unsquared(sum) / n.limit.Most // without end where no error is allowed
}

// seenExcess is excess by those parts alone whose narrowing a network had that was measured.
func (n *sensitivity) seenExcess(p *genome.Placement) float64 {
	if n == nil {
		return 0
	}
	seen := make([]bool, len(narrowings()))
	for _, m := range n.seen {
		for i := range m.parts {
			for _, of := range m.parts[i] {
				seen[n.narrowing(i, of)] = true
			}
		}
	}
	parts := n.covered(p.Chosen)
	for i := range parts {
		parts[i] = slices.DeleteFunc(parts[i], func(of part) bool { return !seen[n.narrowing(i, of)] })
	}
	return n.excessOf(parts)
}

// exceeds says that a placement is believed to be further off than is allowed.
func (n *sensitivity) exceeds(p *genome.Placement) bool { return n.excess(p) > 1 }

// priced are a function's options with the price of what each adds to the error.
func (n *sensitivity) priced(function int, options []place.Option, price float64) []place.Option {
	if n == nil || price == 0 {
		return options
	}
	dearer := slices.Clone(options)
	for k := range dearer {
		for _, p := range n.parts(function, k) {
			dearer[k].Cost += price * n.share[function][p]
		}
	}
	return dearer
}
