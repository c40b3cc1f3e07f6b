// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
)

// scripted runs models that take so many milliseconds, in one turn after the other; then no more turns can be run.
type scripted struct {
	turns []map[string]float64
	// rounds is what each turn ran each model in.
	rounds []map[string]int
}

func (*scripted) Close() error { return nil }

func (s *scripted) Compare(_ context.Context, models []measure.Model, o measure.CompareOptions) (*measure.Comparison,
	error) {
	if len(s.rounds) == len(s.turns) {
		return nil, errors.New("the machine is switched off")
	}
	times, ran := s.turns[len(s.rounds)], map[string]int{}
	comparison := &measure.Comparison{Costs: map[string]cost.Cost{}, Outputs: map[string]measure.OutputCheck{}}
	for _, m := range models {
		ran[m.Name] = o.Rounds
		if m.Rounds > 0 {
			ran[m.Name] = min(m.Rounds, o.Rounds)
		}
		c := cost.Cost{Origin: cost.Measured}
		for range ran[m.Name] {
			c.Samples = append(c.Samples, times[m.Name])
		}
		comparison.Costs[m.Name], comparison.Outputs[m.Name] = c, measure.OutputCheck{OK: true}
	}
	s.rounds = append(s.rounds, ran)
	return comparison, nil
}

// compared has finalists run that the search found to take so long, and gives the decision afterwards.
func compared(t *testing.T, rounds int, search map[string]float64, turns ...map[string]float64) (*decision, *scripted,
	error) {
	t.Helper()
	c := searched(search, made("tvm", 10, 0), made("dnnl", 9, 3), made(graphLevelName, 7, 5))
	for i := range c.graph.result.Trials {
		trial := &c.graph.result.Trials[i]
		ms := trial.Cost.Samples[0]
		trial.Cost = cost.Cost{Origin: cost.Measured, Network: &cost.Network{}}
		for range 9 {
			trial.Cost.Samples = append(trial.Cost.Samples, ms)
			trial.Cost.Network.Against = append(trial.Cost.Network.Against, 10)
		}
	}
	require.True(t, graphlevel.Hopeless(c.graph.result.Trials[0].Cost, c.graph.result.Trials[2].Cost))
	for _, f := range c.finalists {
		f.cost = cost.Cost{}
	}
	runner := &scripted{turns: turns}
	c.ctx, c.searching, c.testRunner, c.Rounds = t.Context(), t.Context(), runner, rounds
	c.Progress = &progress.Printer{}
	return c, runner, c.compare()
}

// What the search found to be hopeless is run in a few rounds, to be told of: it is not chosen by them.
func TestAFewRoundsChooseNothing(t *testing.T) {
	search := map[string]float64{"tvm": 1, "dnnl": 0.9, graphLevelName: 0.7}
	c, runner, err := compared(t, 20, search, map[string]float64{"tvm": 10, "dnnl": 9, graphLevelName: 7})
	require.NoError(t, err)
	assert.Equal(t, []map[string]int{{"tvm": leastRounds, "dnnl": leastRounds, graphLevelName: 20}}, runner.rounds)
	chosen, why, err := c.choose()
	require.NoError(t, err)
	assert.Equal(t, plan.PlacementName, chosen.name)
	assert.Equal(t, "The placement is kept: it is the fastest; the next, dnnl alone, takes 1.29 times as long.", why)

	// None takes longer in all than the best one does, as far as three rounds allow.
	for rounds, want := range map[int]map[string]int{
		leastRounds: {"tvm": hopelessRounds, "dnnl": hopelessRounds, graphLevelName: leastRounds},
		6:           {"tvm": 4, "dnnl": 4, graphLevelName: 6},
	} {
		_, runner, err = compared(t, rounds, search, map[string]float64{"tvm": 10, "dnnl": 9, graphLevelName: 7})
		require.NoError(t, err)
		assert.Equal(t, []map[string]int{want}, runner.rounds)
	}
	c, _, err = compared(t, hopelessRounds, search, map[string]float64{"tvm": 10, "dnnl": 9, graphLevelName: 7})
	require.NoError(t, err)
	assert.Len(t, c.contending(), 3, "there are no fewer rounds: all run in all of them")
	search["tvm"] = 25
	_, runner, err = compared(t, 20, search, map[string]float64{"tvm": 250, "dnnl": 9, graphLevelName: 7})
	require.NoError(t, err)
	assert.Equal(t, []map[string]int{{"tvm": hopelessRounds, "dnnl": leastRounds, graphLevelName: 20}}, runner.rounds)
}

// Where it keeps up, the search was wrong: everybody runs again in all rounds, and these decide.
func TestWhatKeepsUpIsNotHopeless(t *testing.T) {
	search := map[string]float64{"tvm": 1, "dnnl": 0.9, graphLevelName: 0.7}
	c, runner, err := compared(t, 20, search, map[string]float64{"tvm": 12, "dnnl": 6, graphLevelName: 7},
		map[string]float64{"tvm": 12, "dnnl": 6, graphLevelName: 8})
	require.NoError(t, err)
	assert.Equal(t, []map[string]int{{"tvm": leastRounds, "dnnl": leastRounds, graphLevelName: 20},
		{"tvm": leastRounds, "dnnl": 20, graphLevelName: 20}}, runner.rounds)
	lengths := map[string]int{}
	for _, f := range c.finalists {
		lengths[f.name] = len(f.cost.Samples)
	}
	assert.Equal(t, map[string]int{"tvm": leastRounds, "dnnl": 20, graphLevelName: 20}, lengths)
	chosen, why, err := c.choose()
	require.NoError(t, err)
	assert.Equal(t, "dnnl", chosen.name)
	assert.Contains(t, why, "takes 1.33 times as long", "the rounds of the second turn")

	// Where there is no time for that, the rounds that both ran in decide, if they are clear.
	for ms, wanted := range map[float64]string{6: "dnnl", 6.99: plan.PlacementName} {
		c, _, err = compared(t, 20, search, map[string]float64{"tvm": 12, "dnnl": ms, graphLevelName: 7})
		require.EqualError(t, err, "the machine is switched off")
		chosen, _, err = c.choose()
		require.NoError(t, err)
		assert.Equal(t, wanted, chosen.name)
	}
}

// choosy runs what has no model of one name.
type choosy struct {
	scripted
	refuses string
}

func (s *choosy) Compare(ctx context.Context, models []measure.Model, o measure.CompareOptions) (*measure.Comparison,
	error) {
	for _, m := range models {
		if m.Name == s.refuses {
			return nil, errors.New("run: the sizes do not go together")
		}
	}
	return s.scripted.Compare(ctx, models, o)
}

// What plain TVM's virtual machine does not run is not whole, and can be placed by parts; another finalist that does
// not run is left out.
func TestAReferenceThatDoesNotRunOnTheMachine(t *testing.T) {
	turn := map[string]float64{"tvm": 10, "dnnl": 9}
	for refuses, machine := range map[string]*placing.NotWholeError{"tvm": {Where: "%1", Reason: "is a branch"},
		"dnnl": {Where: "%2", Reason: "is a loop"}} {
		c := &decision{ctx: t.Context(), machine: machine, finalists: []*finalist{made("tvm", 10, 0), made("dnnl", 9, 3)}}
		c.testRunner = &choosy{scripted{turns: []map[string]float64{turn, turn}}, refuses}
		c.reference, c.Rounds, c.Progress = c.finalists[0], 1, &progress.Printer{}
		err := c.compare()
		if refuses == "dnnl" {
			require.NoError(t, err)
			assert.Equal(t, cost.KindCrash, c.finalists[1].failure.Kind)
			continue
		}
		var part *placing.NotWholeError
		require.ErrorAs(t, err, &part)
		assert.Equal(t, "cannot run it on its virtual machine, which is to run it since %1 is a branch: "+
			"run: the sizes do not go together", part.Reason)
		c.machine = nil
		assert.EqualError(t, c.compare(), "run: the sizes do not go together")
	}
}
