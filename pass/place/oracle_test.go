// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/rounds"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/place/oracle"
)

// TestSolverOracleAndBruteForceAgree holds three ways to place against each other, on graphs with branches, skips,
// tuples, scopes and several outputs, with options that are legal by the graph, not by its tree.
func TestSolverOracleAndBruteForceAgree(t *testing.T) {
	t.Parallel()
	solved, infeasible, fused := 0, 0, 0
	for seed := range rounds.Seeds(4000) {
		r := rand.New(rand.NewPCG(seed, 21))
		options, tree, brute := place.RandomProblem(r, 1+r.IntN(9))
		p, err := place.Solve(options, tree)
		o, oracleErr := oracle.Dijkstra(options, tree, 1<<20)
		least, ok := brute()
		if !ok {
			var open *place.UncoveredError
			require.ErrorAs(t, err, &open, "seed %d", seed)
			require.ErrorIs(t, oracleErr, oracle.ErrNoCover, "seed %d", seed)
			infeasible++
			continue
		}
		require.NoError(t, err, "seed %d", seed)
		require.NoError(t, oracleErr, "seed %d", seed)
		require.Equal(t, o.Picoseconds, int64(math.Round(p.Cost*1e9)), "seed %d", seed)
		require.InDelta(t, least, p.Cost, 1e-7, "seed %d", seed)
		ranks := int64(0)
		for _, i := range p.Chosen {
			ranks += int64(options[i].Rank)
			if len(options[i].Nodes) > 1 {
				fused++
			}
		}
		require.Equal(t, o.Ranks, ranks, "seed %d", seed)
		require.NoError(t, place.Verify(options, tree, p), "seed %d", seed)
		// The oracle's choice has the solver's certificate, too.
		other := *p
		other.Chosen = o.Chosen
		require.NoError(t, place.Verify(options, tree, &other), "seed %d", seed)
		solved++
	}
	require.Greater(t, solved, rounds.Of(2500))
	require.Greater(t, infeasible, rounds.Of(100))
	require.Greater(t, fused, rounds.Of(1000))
}

// TestSolverAndOracleAgreeOnLargerGraphs goes to where brute force cannot.
func TestSolverAndOracleAgreeOnLargerGraphs(t *testing.T) {
	t.Parallel()
	solved := 0
	for seed := range rounds.Seeds(300) {
		r := rand.New(rand.NewPCG(seed, 22))
		options, tree, _ := place.RandomProblem(r, 20+r.IntN(80))
		p, err := place.Solve(options, tree)
		o, oracleErr := oracle.Dijkstra(options, tree, 20_000)
		var limit *oracle.LimitError
		if errors.As(oracleErr, &limit) {
			continue
		}
		require.Equal(t, err == nil, oracleErr == nil, "seed %d", seed)
		if err != nil {
			continue
		}
		require.Equal(t, o.Picoseconds, int64(math.Round(p.Cost*1e9)), "seed %d", seed)
		require.NoError(t, place.Verify(options, tree, p))
		solved++
	}
	require.Greater(t, solved, rounds.Of(100))
}

func TestTamperedCertificatesOfNetworksAreRefused(t *testing.T) {
	t.Parallel()
	refused := 0
	for seed := range rounds.Seeds(3000) {
		r := rand.New(rand.NewPCG(seed, 23))
		options, tree, _ := place.RandomProblem(r, 2+r.IntN(12))
		p, err := place.Solve(options, tree)
		if err != nil {
			continue
		}
		q := *p
		q.Chosen, q.Prices = slices.Clone(p.Chosen), slices.Clone(p.Prices)
		v, i := r.IntN(len(q.Prices)), r.IntN(len(q.Chosen))
		switch r.IntN(7) {
		case 0:
			q.Prices[v] += 1e-6
		case 1:
			q.Prices[v] -= 1e-6
		case 2:
			q.Cost -= 1e-6
		case 3:
			q.LowerBound -= 1e-6
		case 4:
			q.Gap = 1e-6
		case 5: // price is moved from one node to another, where some option takes notice
			w := r.IntN(len(q.Prices))
			q.Prices[v] += 100
			q.Prices[w] -= 100
			if v == w {
				continue
			}
		case 6: // any other option in the place of a chosen one
			k := r.IntN(len(options))
			if k == q.Chosen[i] || slices.Equal(options[k].Nodes, options[q.Chosen[i]].Nodes) &&
				options[k].Cost == options[q.Chosen[i]].Cost {
				continue
			}
			q.Chosen[i] = k
		}
		require.Error(t, place.Verify(options, tree, &q), "seed %d", seed)
		refused++
	}
	require.Greater(t, refused, rounds.Of(1500))
}

func TestOracleGivesUpAtItsLimit(t *testing.T) {
	t.Parallel()
	options, tree, _ := place.RandomProblem(rand.New(rand.NewPCG(1, 22)), 40)
	_, err := oracle.Dijkstra(options, tree, 10)
	require.EqualError(t, err, "oracle: more than 10 sets of covered nodes")
}
