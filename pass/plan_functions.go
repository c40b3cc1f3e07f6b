// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report"
	"github.com/collage-tvm/collage/pass/report/page"
	"github.com/collage-tvm/collage/pass/report/picture"
	"github.com/collage-tvm/collage/pass/settings"
)

// What Python's Plan asks: texts about plans, which are given as JSON.
const (
	// PlanFunction takes a normalised module and a Config as JSON, and gives the array [module, plan as JSON]: the
	// plan is of what the operator level places, as collage plan makes it, the module is not placed. Precision is left
	// out of account: what is placed is not run.
	PlanFunction = "collage.plan"
	// PlanTableFunction takes a plan and gives what collage explain says of it, in text.
	PlanTableFunction = "collage.plan.table"
	// PlanExplainFunction takes a plan and what plan.ParseSelector takes, and gives why these operators are where they
	// are, in text.
	PlanExplainFunction = "collage.plan.explain"
	// PlanDiffFunction takes two plans and gives what differs between them, in text.
	PlanDiffFunction = "collage.plan.diff"
	// PlanPageFunction takes a plan and gives the page that collage explain --report writes of it, without the command.
	PlanPageFunction = "collage.plan.page"
	// PlanPictureFunction takes a plan and a path that ends in .svg or .png, and writes the picture of what runs where
	// there, in one step.
	PlanPictureFunction = "collage.plan.picture"
)

func planFunction(mod *bridge.Object, cfg settings.Config) (placed *bridge.Object, p *plan.Plan, err error) {
	cfg.Precision = settings.Precision{}
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	if err := cfg.CheckStrict(); err != nil {
		return nil, nil, err
	}
	end, err := cfg.Record("collage.plan")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = end(err) }()
	if cfg.RunsNothing() {
		return decide.Parts(mod, cfg)
	}
	p, err = decide.PlannedBy(mod, cfg)
	return mod, p, err
}

// planArgument is argument i as a plan.
func planArgument(args []bridge.Value, i int, function string) (*plan.Plan, error) {
	text, err := argument(args, i, function)
	if err != nil {
		return nil, err
	}
	p, err := plan.Decode([]byte(text))
	if err != nil {
		return nil, bridge.With(fmt.Errorf("ValueError: the plan is not readable: %w", err), bridge.Exception{Class: "PlanError"})
	}
	return p, nil
}

func planTable(args []bridge.Value) (any, error) {
	p, err := planArgument(args, 0, PlanTableFunction)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	err = report.Summarise(p).WriteText(&b, report.Options{Verbose: true})
	return b.String(), err
}

func planExplain(args []bridge.Value) (any, error) {
	p, err := planArgument(args, 0, PlanExplainFunction)
	if err != nil {
		return nil, err
	}
	text, err := argument(args, 1, PlanExplainFunction)
	if err != nil {
		return nil, err
	}
	selector, err := plan.ParseSelector(text)
	if err != nil {
		return nil, fmt.Errorf("ValueError: %w", err)
	}
	explanations, err := p.Explain(selector)
	if err != nil {
		return nil, fmt.Errorf("ValueError: %w", err)
	}
	var b strings.Builder
	err = report.WriteExplanations(&b, explanations, report.Options{})
	return b.String(), err
}

func planPage(args []bridge.Value) (any, error) {
	p, err := planArgument(args, 0, PlanPageFunction)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	err = page.Write(&b, page.Content{Plan: p, Notes: p.Notes})
	return b.String(), err
}

func planPicture(args []bridge.Value) (any, error) {
	p, err := planArgument(args, 0, PlanPictureFunction)
	if err != nil {
		return nil, err
	}
	path, err := argument(args, 1, PlanPictureFunction)
	if err != nil {
		return nil, err
	}
	drawn, err := picture.New(p)
	if err != nil {
		return nil, fmt.Errorf("ValueError: %w", err)
	}
	write := drawn.WriteSVG
	switch ending := filepath.Ext(path); ending {
	case ".svg":
	case ".png":
		write = drawn.WritePNG
	default:
		return nil, fmt.Errorf("ValueError: the picture %s ends in %q: name a .svg or a .png", path, ending)
	}
	if err := atomicfile.Write(path, write); err != nil {
		return nil, fmt.Errorf("OSError: the picture cannot be written: %w", err)
	}
	return nil, nil
}

func planDiff(args []bridge.Value) (any, error) {
	var plans [2]*plan.Plan
	for i := range plans {
		var err error
		if plans[i], err = planArgument(args, i, PlanDiffFunction); err != nil {
			return nil, err
		}
	}
	var b strings.Builder
	err := report.WriteDifference(&b, plan.Diff(plans[0], plans[1]), [2]string{"this plan", "the other"}, report.Options{})
	return b.String(), err
}
