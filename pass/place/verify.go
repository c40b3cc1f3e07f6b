// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"math"
	"math/big"

	"github.com/collage-tvm/collage/relay"
)

// Verify checks that a placement is what it says: a cover of each node that needs one by exactly one option, of the
// least cost that there is. It trusts nothing that a solver has computed and shares no code with any: the
// proof is weak duality. Whatever numbers the prices are, if over the nodes of each option they sum to at most the
// option's cost, then every cover costs at least the sum of all prices; and the chosen cover costs exactly that.
//
// The options and the tree must be those that were solved. All numbers are taken in whole picoseconds, the
// solver's unit, and compared exactly. The error says which of the conditions fails and where. A LowerBound that is set
// must be the cost.
func Verify(options []Option, tree *Tree, p *Solution) error {
	_, err := verify(options, tree, p, true)
	return err
}

// VerifyBound checks a placement that need not be the cheapest: that it is a cover which costs what it says, and that
// its prices, in milliseconds, sum to no more than any cover costs. It gives that sum.
func VerifyBound(options []Option, tree *Tree, p *Solution) (float64, error) {
	return verify(options, tree, p, false)
}

// verify gives the sum of the prices; cheapest asks for the proof that it is the placement's cost.
func verify(options []Option, tree *Tree, p *Solution, cheapest bool) (float64, error) {
	n := len(tree.Needs)
	if len(p.Prices) != n || len(tree.Parent) != n {
		return 0, fmt.Errorf("certificate: %d prices and %d post-dominators for %d nodes", len(p.Prices),
			len(tree.Parent), n)
	}
	if err := verifyCover(options, tree, p); err != nil {
		return 0, err
	}
	// A placement that was read back from a plan may lack its bound; prices are the proof, not the bound.
	if cheapest && (p.Gap != 0 || p.LowerBound != 0 && p.LowerBound != p.Cost) {
		return 0, fmt.Errorf("certificate: the placement costs %v ms and claims a lower bound of %v ms (gap %v ms): "+
			"that is no claim to be the cheapest", p.Cost, p.LowerBound, p.Gap)
	}

	prices := make([]*big.Int, n)
	sum := new(big.Int)
	for v, price := range p.Prices {
		exact, err := whole(price)
		if err != nil {
			return 0, fmt.Errorf("certificate: the price of node %%%d: %w", v, err)
		}
		if !tree.Needs[v] && exact.Sign() != 0 {
			return 0, fmt.Errorf("certificate: node %%%d needs no cover but has the price %v ms", v, price)
		}
		prices[v] = exact
		sum.Add(sum, exact)
	}
	cost, err := whole(p.Cost)
	if err != nil {
		return 0, fmt.Errorf("certificate: the cost of the placement: %w", err)
	}
	chosen := new(big.Int)
	for _, i := range p.Chosen {
		c, err := whole(options[i].Cost)
		if err != nil {
			return 0, fmt.Errorf("certificate: option %d was chosen: %w", i, err)
		}
		chosen.Add(chosen, c)
	}
	if chosen.Cmp(cost) != 0 {
		return 0, fmt.Errorf("certificate: the chosen options cost %s ps, not %s ps", chosen, cost)
	}
	if cheapest && sum.Cmp(cost) != 0 {
		return 0, fmt.Errorf("certificate: the prices sum to %s ps, the placement costs %s ps", sum, cost)
	}
	for i, o := range options {
		if math.IsInf(o.Cost, 1) {
			continue
		}
		c, err := whole(o.Cost)
		if err != nil {
			return 0, fmt.Errorf("certificate: option %d: %w", i, err)
		}
		over := new(big.Int).Neg(c)
		for _, v := range o.Nodes {
			if v < 0 || int(v) >= n {
				return 0, fmt.Errorf("certificate: option %d covers %%%d, which is no node of the graph", i, v)
			}
			over.Add(over, prices[v])
		}
		if over.Sign() > 0 {
			return 0, fmt.Errorf("certificate: option %d costs %s ps less than the prices of its nodes: "+
				"the placement is not proven to be the cheapest", i, over)
		}
	}
	bound, _ := new(big.Float).SetInt(sum).Float64()
	return bound / 1e9, nil
}

// verifyCover checks the chosen options as such, and that each hangs together below its root; where some do not,
// which have several exits then, that all can be run one after the other.
func verifyCover(options []Option, tree *Tree, p *Solution) error {
	by := map[relay.NodeID]int{}
	last, apart := relay.NoNode, false
	for _, i := range p.Chosen {
		if i < 0 || i >= len(options) {
			return fmt.Errorf("certificate: there is no option %d", i)
		}
		nodes := options[i].Nodes
		if len(nodes) == 0 {
			return fmt.Errorf("certificate: option %d covers nothing", i)
		}
		top := nodes[len(nodes)-1]
		if top <= last {
			return fmt.Errorf("certificate: the chosen options are not in the order of their roots (option %d)", i)
		}
		last = top
		within := map[relay.NodeID]bool{}
		for _, v := range nodes {
			if v < 0 || int(v) >= len(tree.Needs) {
				return fmt.Errorf("certificate: option %d covers %%%d, which is no node of the graph", i, v)
			}
			if !tree.Needs[v] {
				return fmt.Errorf("certificate: option %d covers node %%%d, which needs no cover", i, v)
			}
			if j, twice := by[v]; twice {
				return fmt.Errorf("certificate: node %%%d is covered by the options %d and %d", v, j, i)
			}
			by[v] = i
			within[v] = true
		}
		for _, v := range nodes {
			if v == top || within[tree.Parent[v]] {
				continue
			}
			if apart = true; len(tree.Reads) != len(tree.Needs) {
				return fmt.Errorf("certificate: node %%%d of option %d is not connected with its root %%%d", v, i, top)
			}
		}
	}
	for v, needs := range tree.Needs {
		if _, ok := by[relay.NodeID(v)]; needs && !ok {
			return fmt.Errorf("certificate: node %%%d is not covered", v)
		}
	}
	if apart {
		return verifyOrder(tree, by)
	}
	return nil
}

// verifyOrder checks that the options can be run one after the other: it runs those that wait for nothing until none
// is left. by has the option of each node.
func verifyOrder(tree *Tree, by map[relay.NodeID]int) error {
	type need struct{ user, maker int }
	waits := map[int]int{} // how many others an option waits for
	users := map[int][]int{}
	seen := map[need]bool{}
	for _, i := range by {
		waits[i] += 0
	}
	for v, reads := range tree.Reads {
		for _, u := range reads {
			user, placed := by[relay.NodeID(v)]
			maker, made := by[u]
			if !placed || !made {
				return fmt.Errorf("certificate: %%%d reads %%%d, and one of them needs no cover", v, u)
			}
			if pair := (need{user, maker}); user != maker && !seen[pair] {
				seen[pair] = true
				waits[user]++
				users[maker] = append(users[maker], user)
			}
		}
	}
	var ready []int
	for i, n := range waits {
		if n == 0 {
			ready = append(ready, i)
		}
	}
	run := 0
	for ; run < len(ready); run++ {
		for _, user := range users[ready[run]] {
			if waits[user]--; waits[user] == 0 {
				ready = append(ready, user)
			}
		}
	}
	if run < len(waits) {
		return fmt.Errorf("certificate: %d of %d options wait for each other's results", len(waits)-run, len(waits))
	}
	return nil
}

// whole takes milliseconds as whole picoseconds. Beyond 2^53 of them a float64 no longer names each one.
func whole(ms float64) (*big.Int, error) {
	if math.IsNaN(ms) || math.Abs(ms) > (1<<53)/1e9 {
		return nil, fmt.Errorf("%v ms is no time that can be checked exactly", ms)
	}
	return big.NewInt(int64(math.RoundToEven(ms * 1e9))), nil
}
