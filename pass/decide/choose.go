// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/statistics"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// tieMargin is how much slower a finalist may be, by the median of the paired rounds, and still count as equal. It is
// what a simpler network is worth: the most that is given away for fewer regions.
const tieMargin = 0.01

// choose takes the fastest finalist that may be chosen. Those that cannot be told from it are as good, and then
// the one with the fewest regions is kept: it is the simplest. Of several such the faster one, by what was seen.
func (c *decision) choose() (*finalist, string, error) {
	var running []*finalist
	var lost []string
	for _, f := range c.finalists {
		switch {
		case f.built().failure != nil:
			lost = append(lost, fmt.Sprintf("%s (%s)", f.title(), f.built().failure))
		case f.sameAs == nil || !f.sameAs.eligible:
			running = append(running, f)
		}
	}
	if len(running) == 0 {
		return nil, "", fmt.Errorf("no network that may be chosen can be run: %s%s", strings.Join(lost, "; "),
			c.nearest())
	}
	if c.Settle && c.settled {
		// Each ran in turn with plain TVM, and not with the others: their scores compare.
		chosen := slices.MinFunc(running, func(a,
			b *finalist) int {
			return cmp.Compare(c.scoreOf(a.built()), c.scoreOf(b.built()))
		})
		c.keep(chosen)
		return chosen, reason(chosen, []*finalist{chosen}, running), nil
	}
	contending := slices.DeleteFunc(slices.Clone(running), func(f *finalist) bool { return f.built().rounds > 0 })
	if len(contending) == 0 {
		contending = running // what the search found to be better has failed since
	}
	fastest := slices.MinFunc(contending, byEstimate)
	for _, f := range running {
		// There was no time to run it in all rounds; those that both ran in decide.
		few, all := f.built().cost.Samples, fastest.built().cost.Samples
		if f.built().rounds > 0 && medianRatio(few, all) < 1 && !equal(few, all) {
			fastest, contending = f, append(contending, f)
		}
	}
	var tied []*finalist
	for _, f := range contending {
		if f == fastest || equal(f.built().cost.Samples, fastest.built().cost.Samples) {
			tied = append(tied, f)
		}
	}
	chosen := slices.MinFunc(tied, func(a, b *finalist) int {
		return cmp.Or(a.regions()-b.regions(), cmp.Compare(behind(a, fastest), behind(b, fastest)))
	})
	c.keep(chosen)
	others := contending
	if len(others) == 1 {
		others = running // who comes next ran in a few rounds alone
	}
	return chosen, reason(chosen, tied, others), nil
}

// keep makes the plan that of the finalist that was chosen: what is written down is what is built, whichever that is. A
// placement is called the placement from here on; the other finalists keep the names that say what they are.
func (c *decision) keep(chosen *finalist) {
	if chosen.isPlacement() {
		chosen.name = plan.PlacementName
	}
	c.plan = chosen.plan
	if c.graph != nil && c.Level != settings.OperatorLevel {
		c.plan.Level = string(settings.GraphLevel)
	}
	if c.graph == nil || len(c.graph.result.Trials) == 0 {
		return
	}
	c.plan.GraphLevel = c.graphRecord()
	if chosen.placement != nil {
		c.graph.network.Exchange(chosen.placement, c.graph.result, c.plan)
	}
	if c.Level == settings.OperatorLevel {
		return // what was run stands there, and what each part rests on; there is no history of a search
	}
	c.plan.Timeline = c.timeline()
	text := fmt.Sprintf("%d networks were measured in the search", len(c.graph.result.Trials))
	if chosen.origin != "" {
		text = fmt.Sprintf("The placement is %s; %s", chosen.origin, text)
	}
	c.note("%s", text+".")
}

// reason says in one sentence why the chosen one was kept.
func reason(chosen *finalist, tied, running []*finalist) string {
	title := capital(chosen.title())
	if chosen.settled {
		return fmt.Sprintf("%s is kept: it is the fastest that was found.", title)
	}
	if len(running) == 1 {
		return fmt.Sprintf("%s is kept: there is nothing else to choose.", title)
	}
	if len(tied) > 1 {
		var others []string
		for _, f := range tied {
			if f != chosen {
				others = append(others, fmt.Sprintf("%s (%s)", f.title(), regionText(f.regions())))
			}
		}
		simple := "it is the simplest"
		if slices.ContainsFunc(tied, func(f *finalist) bool { return f != chosen && f.regions() == chosen.regions() }) {
			simple = "none is simpler"
		}
		return fmt.Sprintf("%s is kept: by its time it cannot be told from %s, and with %s outside of TVM %s.",
			title, joinNames(others), regionText(chosen.regions()), simple)
	}
	others := slices.DeleteFunc(slices.Clone(running), func(f *finalist) bool { return f == chosen })
	second := slices.MinFunc(others, byEstimate)
	return fmt.Sprintf("%s is kept: it is the fastest; the next, %s, takes %.3g times as long.", title, second.title(),
		medianRatio(second.built().cost.Samples, chosen.built().cost.Samples))
}

// behind is how many times as long a finalist takes as the fastest, in the rounds that both ran in.
func behind(f, fastest *finalist) float64 {
	return medianRatio(f.built().cost.Samples, fastest.built().cost.Samples)
}

func byEstimate(a, b *finalist) int {
	return cmp.Compare(a.built().cost.Estimate(), b.built().cost.Estimate())
}

func regionText(n int) string {
	switch n {
	case 0:
		return "no region"
	case 1:
		return "1 region"
	}
	return fmt.Sprintf("%d regions", n)
}

// doubt is how likely chance alone must be for what it explains to be called equal (a sign test). Lower, and more
// rounds are called equal that are not; higher, and chance decides more often than a tie does (mostTurns runs them
// again).
const doubt = 0.1

// equal says that two finalists cannot be told apart: the median of the rounds' ratios is within the margin, or so
// few rounds lie on one side that chance explains them. Of fewer than five rounds not even all on one side are rare
// enough for the test; they are told apart all the same, for whoever asks for one round wants an answer.
func equal(a, b []float64) bool { return equalWithin(a, b, tieMargin, doubt) }

func equalWithin(a, b []float64, margin, doubt float64) bool {
	ratio := medianRatio(a, b)
	if math.IsNaN(ratio) {
		return false
	}
	if math.Abs(ratio-1) <= margin {
		return true
	}
	below, above := statistics.Signs(a, b)
	fewer := min(above, below)
	return fewer > 0 && statistics.SignTest(fewer, above+below) > doubt
}

// medianRatio is the median over the rounds of a's time divided by b's in the same round; NaN without rounds.
func medianRatio(a, b []float64) float64 { return statistics.Median(statistics.Ratios(a, b)) }

// record writes the finalists into the plan.
func (c *decision) record(chosen *finalist) {
	c.plan.Finalists, c.plan.Precision = nil, c.precisionRecord()
	if measure.Doubtful(c.plainDoubt) {
		c.plan.Doubt = c.plainDoubt
	}
	if c.settled && len(c.graph.result.Trials) == 0 {
		return // there was one network, and nobody ran it
	}
	all := c.finalists
	if !c.reference.eligible && !c.settled {
		why := "it was not offered (--backends)"
		if c.constrained() {
			why = "what was asked for (--pin, --forbid) rules it out, and every backend alone"
		}
		c.note("TVM alone was run to check outputs; %s.", why)
		all = append([]*finalist{c.reference}, all...)
	}
	for _, f := range all {
		built := f.built()
		entry := plan.Finalist{Name: f.name, Origin: f.origin, Regions: f.regions(), Samples: built.cost.Samples,
			MaxError: built.maxError, Error: c.errorOfFinalist(f), Failure: built.failure,
			Chosen: f == chosen, Bytes: built.bytes, Resident: built.resident, Peak: built.peak}
		if f.plan != nil {
			entry.Estimate = f.plan.Estimate.Milliseconds
		}
		if entry.Failure != nil {
			entry.Samples, entry.MaxError = nil, 0
			c.warn("%s was left out: %s.", capital(f.title()), entry.Failure)
		}
		c.plan.Finalists = append(c.plan.Finalists, entry)
	}
	c.recordPoints(chosen)
}

// sameModule says whether two modules are the same network.
func sameModule(a, b *bridge.Object) (bool, error) {
	if a.Same(b) {
		return true, nil
	}
	// Not in assert mode; free variables need not be the same objects.
	value, err := bridge.Global("node.StructuralEqual", a, b, false, true)
	if err != nil {
		return false, fmt.Errorf("comparing two placements: %w", err)
	}
	return value.Bool()
}

func capital(s string) string {
	// Names of backends stay as users write them.
	if rest, found := strings.CutPrefix(s, "the "); found {
		return "The " + rest
	}
	return s
}
