// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/calibration"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/settings"
)

// offer settles which backends may be used, with those that compute narrowly. Errors: settings.Precision.Offered's, and
// an *settings.OptionError where there is nothing to hold what is computed narrowly against.
func (c *decision) offer() (err error) {
	if err := c.allowRounding(); err != nil {
		return err
	}
	if c.Backends, err = c.Precision.Offered(c.Backends); err != nil {
		return err
	}
	narrow := slices.DeleteFunc(slices.Clone(c.Backends), func(name string) bool { return !computesNarrowly(name) })
	switch {
	case len(narrow) == 0 && c.machine != nil && c.Precision.Limit() != (cost.Limit{}):
		c.warn("How far the network is off is not measured on TVM's virtual machine: only the tolerance of " +
			"candidates held.")
	case len(narrow) == 0:
	case !slices.Contains(c.Backends, "tvm"):
		return &settings.OptionError{Option: "precision",
			Reason: "is " + c.Precision.Allowed + ", and tvm is not among the " +
				"backends: how far a network is off is measured beside TVM's"}
	case c.machine != nil:
		c.Backends = slices.DeleteFunc(slices.Clone(c.Backends), computesNarrowly)
		c.warn("All of it is computed in float32, without %s: on TVM's virtual machine it is "+
			"not measured how far a network is off.", joinNames(narrow))
	}
	if c.machine != nil {
		c.Precision = settings.Precision{} // or network.Place would offer them again
		return nil
	}
	return c.take()
}

// allowRounding gives a network that came quantised a budget of errors where the user has stated none: float32's
// tolerance would hold nobody's answer but TVM's own for right. Where the user has not stated a precision, either,
// parts may be computed narrowly: what the network has rounded to bytes may be multiplied as bytes.
func (c *decision) allowRounding() error {
	if c.machine != nil || c.Precision.MaxError > 0 || !slices.Contains(c.Backends, "tvm") {
		return nil
	}
	quantised, err := normalise.Quantised(c.module)
	if err != nil || !quantised {
		return err
	}
	c.Precision.MaxError = settings.QuantisedMaxError
	note := fmt.Sprintf("The network is quantised: what is rounded the other way is a whole step off, so its outputs may be "+
		"off by %g (%s); max_error changes that.", c.Precision.MaxError, cost.MeasureText(c.Precision.Limit().Measure))
	if c.Precision.Allowed == "" && !c.Exact {
		c.Precision.Allowed, c.Precision.OnlyBytes = settings.PrecisionAuto, true
		note += " Parts may be computed in bytes; precision=f32 does without."
	}
	c.note("%s", note)
	return nil
}

// take reads the inputs on which errors are taken, once, and whether the network came quantised.
func (c *decision) take() (err error) {
	if c.quantised, err = normalise.Quantised(c.module); err != nil {
		return err
	}
	c.taken, err = calibration.Take(&c.Precision, c.module)
	return err
}

// inputs are those of the search; nil where no errors are taken.
func (c *decision) inputs() *measure.Inputs {
	if c.taken == nil {
		return nil
	}
	return c.taken.Inputs
}

// data tells the calibration data that scales are found on from others; "" for random inputs.
func (c *decision) data() string {
	if c.taken == nil {
		return ""
	}
	return c.taken.ScalesDigest
}

// ownMeasure is the measure of the user's own in which errors are taken; nil for none.
func (c *decision) ownMeasure() *measure.OwnMeasure {
	if c.taken == nil {
		return nil
	}
	return c.taken.Measure
}

// computesNarrowly says that a backend computes in a narrower type than the network's.
func computesNarrowly(name string) bool {
	b, err := byoc.Lookup(strings.TrimSpace(name))
	return err == nil && byoc.PrecisionOf(b) != byoc.F32
}

// narrow says that parts of a finalist are computed in a narrower type than the network's, or otherwise than by TVM
// where the network itself is quantised.
func (c *decision) narrow(f *finalist) bool {
	return f.plan != nil && slices.ContainsFunc(f.plan.Regions, func(r plan.Region) bool {
		return slices.ContainsFunc(r.Backends(), func(name string) bool {
			return computesNarrowly(name) || c.quantised && name != "tvm"
		})
	})
}

// overBudget says by how much a network's outputs are further off than they may be, on the inputs by which the search
// decides or on those that it has not seen; "" where they are not.
func (c *decision) overBudget(t *graphlevel.Trial) string {
	if t.Exceeds != "" || t.Cost.Network == nil {
		return t.Exceeds
	}
	if exceeds := c.Precision.Limit().Exceeded(t.Cost.Network.HeldOut); exceeds != "" {
		return exceeds + " (on inputs that the search has not seen)"
	}
	return ""
}

// mayBeKept says that a network of the search ran, and that its outputs are no further off than they may be.
func (c *decision) mayBeKept(t *graphlevel.Trial) bool {
	return !t.Cost.Failed() && c.overBudget(t) == ""
}

// holdToBudget has a finalist lose whose outputs are further off than they may be.
func (c *decision) holdToBudget(f *finalist) {
	if f.failure != nil || f == c.reference {
		return
	}
	detail := ""
	if t := c.trialOf(f.placement); t != nil {
		detail = c.overBudget(t)
	} else if c.narrow(f) {
		detail = "how far its outputs are off was not measured"
	}
	if detail != "" {
		f.failure = &cost.Failure{Phase: "check", Kind: cost.KindOverBudget, Detail: detail}
	}
}

// nearest says by how much the best misses what is allowed, of all networks that ran and are too far off; "" where
// there is none.
func (c *decision) nearest() string {
	limit, least := c.Precision.Limit(), math.Inf(1)
	if c.graph == nil || c.graph.result == nil || limit == (cost.Limit{}) {
		return ""
	}
	for i := range c.graph.result.Trials {
		t := &c.graph.result.Trials[i]
		if t.Cost.Failed() || t.Cost.Network == nil || t.Cost.Network.Errors == nil {
			continue
		}
		off := t.Cost.Network.Errors.In(limit.Measure)
		if other := t.Cost.Network.HeldOut; other != nil {
			off = max(off, other.In(limit.Measure))
		}
		least = min(least, off)
	}
	if math.IsInf(least, 1) || least <= limit.Most {
		return ""
	}
	return fmt.Sprintf("; the nearest to what is allowed is off by %.3g, %.3g times as much", least, least/limit.Most)
}

// unsearched are the inputs on which finalists are held to the budget where there was no search that did so: of a plan
// that is replayed.
func (c *decision) unsearched() []measure.Input {
	if c.taken == nil || c.graph != nil {
		return nil
	}
	return c.taken.HeldOut
}

// errorOf is how far a network's outputs are off on the inputs that the search has not seen, in the measure that was
// asked for; 0 where that was not taken.
func (c *decision) errorOf(t *graphlevel.Trial) float64 {
	limit := c.Precision.Limit()
	if t == nil || limit.Measure == "" || t.Cost.Network == nil || t.Cost.Network.HeldOut == nil {
		return 0
	}
	return t.Cost.Network.HeldOut.In(limit.Measure)
}

// errorOfFinalist is errorOf for a finalist, whether the graph level knows of it or not.
func (c *decision) errorOfFinalist(f *finalist) float64 {
	if c.graph == nil || f.placement == nil {
		return 0
	}
	return c.errorOf(c.trialOf(f.placement))
}

// errorText says in a line of progress how far a network's outputs are off.
func (c *decision) errorText(t *graphlevel.Trial) string {
	if e := c.errorOf(t); e > 0 {
		return fmt.Sprintf(", off by %.2g (%s)", e, cost.MeasureText(c.Precision.Limit().Measure))
	}
	return ""
}

// precisionRecord is what the plan says of the budget; nil where there was none.
func (c *decision) precisionRecord() *plan.Precision {
	limit := c.Precision.Limit()
	if limit == (cost.Limit{}) {
		return nil
	}
	allowed := c.Precision.Allowed
	if allowed == "" {
		allowed = settings.PrecisionF32
	}
	record := &plan.Precision{Allowed: allowed, MaxError: limit.Most, Measure: limit.Measure}
	if c.graph != nil && c.graph.result != nil {
		record.Lagrangian = c.graph.result.Lagrangian
		if c.Corners {
			corners, err := c.graph.result.Corners()
			if err != nil {
				c.warn("The corners of time against error are not known: %v.", err)
			}
			record.Corners = corners
		}
	}
	if c.taken != nil {
		record.Searched, record.HeldOut = len(c.taken.Searched), len(c.taken.HeldOut)
		record.Calibration = c.taken.Digest
		if c.graph != nil {
			c.recordScales(record)
		}
		if own := c.ownMeasure(); own != nil {
			record.MeasureDigest = own.Digest
		}
	}
	return record
}

// recordScales writes down how scales were found, and what came of correcting biases, where that is for what is kept.
func (c *decision) recordScales(record *plan.Precision) {
	rounds := c.keepsScales()
	corrects := slices.ContainsFunc(c.plan.Regions, func(r plan.Region) bool { return len(r.Corrected) > 0 })
	if !rounds && !corrects {
		return
	}
	scales := c.graph.network.Scales()
	switch {
	case scales == nil:
	case rounds:
		record.Scaled, record.Compared = scales.Inputs, scales.Compared
		record.Method, record.Methods, record.Biases = scales.Method, scales.Tried, scales.Biases
	default:
		record.Biases = scales.Biases
	}
}

// keepsScales says that parts of what is kept are computed in bytes by scales that were found beforehand.
func (c *decision) keepsScales() bool {
	return slices.ContainsFunc(c.plan.Regions, func(r plan.Region) bool { return len(r.Rounded) > 0 })
}

// sayRandom has randomNote told: as a warning where scales hang on these inputs, since what is cut off is wrong, and
// with Strict.
func (c *decision) sayRandom() {
	switch note := c.randomNote(); {
	case note == "":
	case c.keepsScales(), c.Strict:
		c.warn("%s", note)
	default:
		c.note("%s", note)
	}
}

// randomNote says what an error is worth that was taken on random inputs, where parts of what is kept are computed
// narrowly; "" where they are not, or the inputs were the user's.
func (c *decision) randomNote() string {
	if c.graph == nil || c.taken == nil || c.taken.Digest != "" || !slices.ContainsFunc(c.plan.Regions,
		func(r plan.Region) bool { return slices.ContainsFunc(r.Backends(), computesNarrowly) }) {
		return ""
	}
	if c.keepsScales() {
		return "The scales of bytes were found on random inputs, and so was how far the outputs are off: what real inputs " +
			"reach beyond these is cut off, and nothing here has seen it. Give some of them (calibration) before this is relied on."
	}
	return "How far the outputs are off was found on random inputs; real ones may be less kind. Give some of them " +
		"(calibration) to know."
}

// sameData says why a plan cannot be held to its budget: its errors were taken on other data, or by another function.
func (c *decision) sameData(p *plan.Plan) error {
	if p.Precision == nil || c.NoVerify || c.taken == nil {
		return nil
	}
	if own := c.ownMeasure(); own != nil && own.Digest != p.Precision.MeasureDigest {
		return &settings.OptionError{Option: "error_measure",
			Reason: fmt.Sprintf("is not what the plan's errors were taken in: "+
				"%s has changed since; have it as it was (SHA-256 %s...), or do not have the outputs compared", own.File,
				p.Precision.MeasureDigest)}
	}
	if c.taken.Digest == p.Precision.Calibration {
		return nil
	}
	was := "random inputs"
	if p.Precision.Calibration != "" {
		was = "calibration data (SHA-256 " + p.Precision.Calibration + "...)"
	}
	if c.otherData && c.Precision.Calibration == "" {
		c.warn("The outputs are compared on random inputs, and the plan's errors were taken on %s: give that (calibration) "+
			"to be as sure as the plan is.", was)
		return nil
	}
	return &settings.OptionError{Option: "calibration",
		Reason: "is not what the plan's errors were taken on, which is " + was +
			": give that, or do not have the outputs compared (verify=False, --no-verify)"}
}
