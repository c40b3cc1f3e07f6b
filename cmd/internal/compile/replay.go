// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/decide"
	"github.com/collage-tvm/collage/pass/plan"
)

// replay builds what a plan says, and measures nothing.
func (c *compilation) replay() (*Result, error) {
	result := &Result{}
	p := c.Replay
	if err := c.adopt(p); err != nil {
		return nil, err
	}
	if err := c.checkTarget(); err != nil {
		return nil, err
	}
	if err := c.load(&result.Model); err != nil {
		return nil, err
	}
	built, err := decide.Replay(c.ctx, c.module, p, c.Options.Options)
	if err != nil {
		return nil, c.located(err, result.Model.Format)
	}
	built.Notes = c.staleNotes(p)
	return result, c.export(result, built)
}

// levelOf is the optimisation level in a cost's options ("O3 -AlterOpLayout").
var levelOf = regexp.MustCompile(`^O([0-4])\b`)

// adopt takes from the plan what it was made for.
func (c *compilation) adopt(p *plan.Plan) error {
	level := levelOf.FindStringSubmatch(p.Environment.Options)
	if level == nil {
		return fmt.Errorf("the plan does not say for which optimisation level it is: its options are %q",
			p.Environment.Options)
	}
	c.OptLevel, _ = strconv.Atoi(level[1])
	c.Target, c.Threads = p.Environment.Target, p.Environment.Threads
	if err := c.checkTuned(p); err != nil {
		return err
	}
	c.Backends = nil
	for _, b := range p.Backends {
		c.Backends = append(c.Backends, b.Name)
	}
	return nil
}

// checkTuned makes sure that what was tuned for the plan is here, and nothing else.
func (c *compilation) checkTuned(p *plan.Plan) error {
	digest := ""
	if c.TuningLog != "" {
		var err error
		if digest, err = pass.TuningDigest(c.TuningLog); err != nil {
			return fmt.Errorf("--tuning-log: %w", err)
		}
	}
	_, wanted, tuned := strings.Cut(p.Environment.Options, strings.TrimRight(pass.Tuned(strings.Repeat("x", 16)), "x"))
	switch {
	case tuned && digest == "":
		return fmt.Errorf("the plan was made with a tuning log (SHA-256 %s...): give it with --tuning-log", wanted)
	case tuned && !strings.HasPrefix(digest, wanted):
		return fmt.Errorf("the plan was made with another tuning log (SHA-256 %s...) than %s (%s...)", wanted,
			c.TuningLog, digest[:16])
	case !tuned && digest != "":
		return fmt.Errorf("the plan was made without a tuning log: leave --tuning-log out, or make a plan with it " +
			"(collage plan)")
	}
	return nil
}

// staleNotes say where this machine is another than the one that the plan's costs are from.
func (c *compilation) staleNotes(p *plan.Plan) []string {
	var differences []string
	if here := cost.Device(); here != p.Environment.Device {
		differences = append(differences, fmt.Sprintf("its costs are from %s, this machine is %s", p.Environment.Device,
			here))
	}
	for _, b := range p.Backends {
		backend, err := byoc.Lookup(b.Name)
		if err != nil || b.Regions == 0 {
			continue
		}
		if here := plan.NewBackend(backend); here.Version != b.Version || here.Library != b.Library {
			differences = append(differences,
				fmt.Sprintf("it was made with %s %s, here is %s %s", b.Library, b.Version, here.Library,
					here.Version))
		}
	}
	if len(differences) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("Another placement may be faster here: %s.", strings.Join(differences, "; "))}
}
