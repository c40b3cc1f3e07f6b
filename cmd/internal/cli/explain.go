// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
	"github.com/collage-tvm/collage/pass/report/page"
)

var explainCommand = Command{
	Name:      "explain",
	Arguments: "PLAN [NODE]",
	Short:     "say why an operator is where it is, or check a plan's proof",
	Long: `Reads a plan that collage plan or collage compile wrote, and says what it decides. With NODE it says why that
operator is where it is: which candidates there were, what they cost, what each operator costs in this placement (its
price), and by how much a candidate that was not taken would have had to be faster.

NODE is the number of a node (%12; block%12 for one of the function block), an operator (nn.conv2d), or what the front
end called it (conv1/BiasAdd, or model.onnx:12:3).

With --verify the plan's proof is checked from the file alone: every operator is covered once, and no choice among all
candidates costs less, or less by more than what is then said. A plan that was changed by hand does not pass. What the
proof rests on (costs that were measured, lower bounds and how often such were found wrong) is said with it.

With --report the whole plan becomes a page: the network drawn, each operator with what it costs and what else could
have run it, the regions, the finalists and the search. With --svg or --png it becomes a picture of what runs where.`,
	Examples: []string{
		"explain plan.json",
		"explain plan.json %12",
		"explain plan.json nn.softmax --verbose",
		"explain --verify plan.json",
		"explain plan.json --report placement",
		"explain plan.json --svg placement.svg",
	},
	New: func(flags *pflag.FlagSet) Action {
		a := &explainAction{}
		flags.BoolVar(&a.verify, "verify", false, "check the plan's proof")
		a.declarePage(flags)
		a.declarePictures(flags)
		flags.BoolVar(&a.json, "json", false, "print JSON")
		flags.BoolVarP(&a.verbose, "verbose", "v", false, "leave nothing out")
		return a
	},
}

type explainAction struct {
	pageFlag
	pictureFlags
	verify, json, verbose bool
}

// shownRivals is how many candidates are listed that came close to being taken.
const shownRivals = 10

func (a *explainAction) Check(_ *Session, args []string) error {
	if a.folder != "" && (a.verify || len(args) == 2) {
		return errors.New("--report is about the whole plan: leave NODE and --verify out")
	}
	if files := a.pictures(); len(files) > 0 && (a.verify || len(args) == 2) {
		return fmt.Errorf("%s is about the whole plan: leave NODE and --verify out", files[0].what)
	}
	if err := a.checkPictures(); err != nil {
		return err
	}
	if err := a.checkPage(); err != nil {
		return err
	}
	if len(args) == 2 && !a.verify {
		if _, err := plan.ParseSelector(args[1]); err != nil {
			return err
		}
		return checkReadable("plan", args[0])
	}
	if err := expect(&explainCommand, args, "PLAN"); err != nil {
		return err
	}
	if err := checkDifferent(usedFile{"PLAN", args[0]}, usedFile{"--report", a.path()},
		usedFile{"--svg", a.svg}, usedFile{"--png", a.png}); err != nil {
		return err
	}
	return checkReadable("plan", args[0])
}

func (a *explainAction) Run(s *Session, args []string) error {
	p, err := plan.ReadFile(args[0])
	if err != nil {
		return err
	}
	switch {
	case a.verify:
		return a.verifyPlan(s, args[0], p)
	case len(args) == 2:
		return a.explainNode(s, p, args[1])
	}
	return a.explainPlan(s, args[0], p)
}

func (a *explainAction) explainNode(s *Session, p *plan.Plan, node string) error {
	selector, err := plan.ParseSelector(node)
	if err != nil {
		return err
	}
	explanations, err := p.Explain(selector)
	if err != nil {
		return err
	}
	if a.json {
		return s.printJSON(map[string]any{"explanations": explanations})
	}
	return report.WriteExplanations(s.Stdout, explanations, report.Options{Verbose: a.verbose})
}

func (a *explainAction) explainPlan(s *Session, path string, p *plan.Plan) error {
	// Which command made the plan, it does not say; what builds it again is known.
	again := fmt.Sprintf("collage compile %s --plan %s -o model.tar", shellWord(cmp.Or(p.Module.Name, "MODEL")),
		shellWord(path))
	if err := a.writePage(page.Content{Plan: p, Command: again, CommandSays: "This builds the placement again:",
		Notes: p.Notes}); err != nil {
		return err
	}
	if err := a.writePictures(p); err != nil {
		return err
	}
	rivals, err := p.Closest(shownRivals)
	if err != nil {
		return err
	}
	if a.json {
		shown := map[string]any{"report": report.Summarise(p), "closest": append([]plan.Rival{}, rivals...),
			"constraints": p.Constraints, "notes": append([]string{}, p.Notes...)}
		if a.folder != "" {
			shown["page"] = a.path()
		}
		return s.printJSON(shown)
	}
	if c := p.Constraints; c != nil {
		if len(c.Pin) > 0 {
			fmt.Fprintf(s.Stdout, "pinned: %s\n", strings.Join(c.Pin, ", "))
		}
		if len(c.Forbid) > 0 {
			fmt.Fprintf(s.Stdout, "forbidden: %s\n", strings.Join(c.Forbid, ", "))
		}
	}
	if err := report.Summarise(p).WriteText(s.Stdout, report.Options{Verbose: a.verbose}); err != nil {
		return err
	}
	fmt.Fprintln(s.Stdout)
	for _, note := range p.Notes {
		fmt.Fprintln(s.Stdout, note)
	}
	if len(p.Notes) > 0 {
		fmt.Fprintln(s.Stdout)
	}
	if err := report.WriteClosest(s.Stdout, rivals); err != nil {
		return err
	}
	switch {
	case len(rivals) == 0:
	case p.Exchanged():
		fmt.Fprintln(s.Stdout, "(by costs in place and by what borders take)")
	case p.PlacedInPlace():
		fmt.Fprintln(s.Stdout, "(by costs in place, what borders take not counted)")
	}
	a.tellPictures(s.Stdout)
	if a.folder != "" {
		fmt.Fprintf(s.Stdout, "wrote the report %s\n", a.path())
	}
	_, err = fmt.Fprintln(s.Stdout, "`collage explain PLAN %12` says why node 12 is where it is.")
	return err
}

// verification is what --verify --json prints.
type verification struct {
	Plan       string  `json:"plan"`
	Valid      bool    `json:"valid"`
	Fault      string  `json:"fault,omitempty"`
	Candidates int     `json:"candidates"`
	Operators  int     `json:"operators"`
	Estimate   float64 `json:"estimate_ms"`
	// Bound is what no placement costs less than, as far as the file proves it; Gap is Estimate less Bound.
	Bound float64 `json:"bound_ms"`
	Gap   float64 `json:"gap_ms"`
	// Believed is the same by what a search among whole networks ended with; nil where the plan says nothing of it.
	Believed *believedVerification `json:"believed,omitempty"`
	// Rests is what the proof rests on: of how many computations the cost came from where.
	Rests rests `json:"rests_on"`
}

type believedVerification struct {
	Milliseconds float64 `json:"total_ms"`
	// Bound is what the file shows, Searched what the solver has shown.
	Bound    float64 `json:"bound_ms"`
	Searched float64 `json:"searched_bound_ms"`
}

type rests struct {
	Measured int `json:"measured"`
	Stored   int `json:"stored"`
	Given    int `json:"given"`
	InPlace  int `json:"in_place"`
	// Bounded are lower bounds. Of the Tested, whose costs are known too, Wrong were above the cost.
	Bounded int `json:"bounded"`
	Tested  int `json:"bounds_tested"`
	Wrong   int `json:"bounds_wrong"`
}

func (a *explainAction) verifyPlan(s *Session, path string, p *plan.Plan) error {
	proof, err := p.Prove()
	v := verification{Plan: path, Valid: err == nil, Candidates: p.Candidates.Proposed, Operators: p.Operators(),
		Estimate: p.Estimate.Milliseconds, Bound: proof.Bound, Gap: proof.Gap()}
	c := &p.Candidates
	v.Rests = rests{Measured: c.Measured, Stored: c.Stored, Given: c.Given, InPlace: c.InPlace, Bounded: c.Bounded,
		Tested: c.Tested, Wrong: c.Wrong}
	if proof.Believed != nil {
		v.Believed = &believedVerification{proof.Believed.Milliseconds, proof.Believed.Bound,
			p.GraphLevel.Believed.Bound}
	}
	if err != nil {
		v.Fault, v.Gap = err.Error(), p.Estimate.Milliseconds
	}
	if a.json {
		if err := s.printJSON(v); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, plan.ErrNotProven):
		return fmt.Errorf("%s holds no proof: its placement was not searched for", path)
	case err != nil:
		return fmt.Errorf("%s: the proof does not check: %s", path, strings.TrimPrefix(err.Error(), "plan: "))
	case a.json:
		return nil
	}
	candidates := p.Candidates.Proposed - len(p.Candidates.Excluded)
	var b strings.Builder
	if proof.Gap() > 0 {
		fmt.Fprintf(&b, "%s: the proof checks: each of %d operators is placed once, for %g ms, and no placement of "+
			"the %d "+
			"candidates costs less than %g ms: proven within %g ms (%.2g %%) of the cheapest\n", path, p.Operators(),
			proof.Milliseconds,
			candidates, proof.Bound, proof.Gap(), 100*proof.Gap()/proof.Milliseconds)
	} else {
		fmt.Fprintf(&b, "%s: the proof checks: each of %d operators is placed once, and no placement of the %d "+
			"candidates "+
			"costs less than %g ms\n", path, p.Operators(), candidates, p.Estimate.Milliseconds)
	}
	fmt.Fprintf(&b, "it rests on %s\n", report.Rests(&p.Candidates))
	if believed := proof.Believed; believed != nil {
		fmt.Fprintf(&b, "by the costs in place and the borders as they were learnt, it takes %g ms; no network of "+
			"these candidates takes less than "+
			"%g ms, which the file shows, and %g ms, which the solver has shown\n", believed.Milliseconds,
			believed.Bound, p.GraphLevel.Believed.Bound)
	}
	_, err = fmt.Fprint(s.Stdout, b.String())
	return err
}
