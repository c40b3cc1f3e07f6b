// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/cost"
)

// Precision says in which types a network may be computed, and how far its outputs may be off by it.
type Precision struct {
	// Allowed is the narrowest type that parts may be computed in: PrecisionF32 ("" too), PrecisionBF16, PrecisionINT8,
	// or PrecisionAuto for all that backends here have. Parts are computed in float32 all the same where that is
	// quicker, and where the error would be too large otherwise.
	Allowed string `json:"precision,omitempty"`
	// MaxError is how far the network's outputs may be off plain TVM's in float32, in Measure; 0 for DefaultMaxError
	// where parts may be computed narrowly, else for the tolerance that candidates have.
	MaxError float64 `json:"max_error,omitempty"`
	// Measure is one of cost.Measures, or FILE.py:FUNCTION, a Python function of the user's
	// (python/collage/error_measure.py); "" for cost.L2.
	Measure string `json:"error_measure,omitempty"`
	// Calibration is an .npz file with real inputs, or a folder of them (Take); "" for random ones.
	Calibration string `json:"calibration,omitempty"`
	// CalibrationMethod is how scales are made of what is seen of values: a rounding.Method, or CalibrationAuto (""
	// too) for the one by which the outputs are off the least on inputs on which nothing was seen.
	CalibrationMethod string `json:"calibration_method,omitempty"`
	// BiasCorrection says whether what rounded weights are off by in the mean is taken off biases: BiasesOn, BiasesOff,
	// or BiasesAuto ("" too) for what makes the outputs be off the least.
	BiasCorrection string `json:"bias_correction,omitempty"`
	// OnlyBytes has PrecisionAuto leave bfloat16 out: of a network that comes quantised its author has said that bytes
	// will do, and nothing of bfloat16.
	OnlyBytes bool `json:"-"`
}

// What Precision.Allowed may be.
const (
	PrecisionF32  = string(byoc.F32)
	PrecisionBF16 = string(byoc.BF16)
	PrecisionINT8 = string(byoc.INT8)
	PrecisionAuto = "auto"
)

// CalibrationAuto has the method that makes scales be the one that is measured to be the best.
const CalibrationAuto = "auto"

// ScaleMethod is the method by which scales are made; "" for the one that is measured to be the best.
func (p *Precision) ScaleMethod() rounding.Method {
	if p.CalibrationMethod == CalibrationAuto {
		return ""
	}
	return rounding.Method(p.CalibrationMethod)
}

// What Precision.BiasCorrection may be.
const (
	BiasesOn   = "on"
	BiasesOff  = "off"
	BiasesAuto = "auto"
)

// Biases is BiasCorrection, never "".
func (p *Precision) Biases() string { return cmp.Or(p.BiasCorrection, BiasesAuto) }

// DefaultMaxError is how far outputs may be off where parts are computed narrowly and nobody says more.
const DefaultMaxError = 1e-2

// QuantisedMaxError is how far the outputs of a network that came quantised may be off where nobody says more: twice
// what the most sensitive of four networks does to its own outputs under plain TVM where its inputs change by a hundred
// thousandth (RATIONALE.md).
const QuantisedMaxError = 0.1

// Precisions are what Precision.Allowed may be.
func Precisions() []string {
	return []string{PrecisionF32, PrecisionBF16, PrecisionINT8, PrecisionAuto}
}

// Narrow says that parts may be computed in a narrower type than the network's.
func (p *Precision) Narrow() bool { return p.Allowed != "" && p.Allowed != PrecisionF32 }

// Limit is how far outputs may be off; the zero Limit where only the tolerance of candidates holds.
func (p *Precision) Limit() cost.Limit {
	limit := cost.Limit{Most: p.MaxError, Measure: cmp.Or(p.Measure, cost.L2)}
	if file, function, own := cost.OwnMeasure(limit.Measure); own {
		if path, err := filepath.Abs(file); err == nil { // workers stand in other folders
			limit.Measure = path + ":" + function
		}
	}
	switch {
	case limit.Most > 0:
		return limit
	case p.Narrow():
		limit.Most = DefaultMaxError
		return limit
	}
	return cost.Limit{}
}

// Validate says which option makes no sense.
func (p *Precision) Validate() error {
	switch {
	case p.Allowed != "" && !slices.Contains(Precisions(), p.Allowed):
		return &OptionError{"precision", fmt.Sprintf("is %q; it is %s", p.Allowed, oneOf(Precisions()))}
	case !(p.MaxError >= 0 && p.MaxError < 1):
		return &OptionError{"max_error", fmt.Sprintf("is %v; it is a share, such as 0.01", p.MaxError)}
	case p.Measure != "" && p.Limit() == (cost.Limit{}):
		return &OptionError{"error_measure", NoBudget}
	case p.CalibrationMethod != "" && p.Allowed != PrecisionINT8 && p.Allowed != PrecisionAuto:
		return &OptionError{"calibration_method", "goes with the precision " + PrecisionINT8 + " or " + PrecisionAuto}
	}
	switch {
	case p.BiasCorrection == "":
	case !slices.Contains([]string{BiasesOn, BiasesOff, BiasesAuto}, p.BiasCorrection):
		return &OptionError{"bias_correction", fmt.Sprintf("is %q; it is %s", p.BiasCorrection,
			oneOf([]string{BiasesOn, BiasesOff, BiasesAuto}))}
	case p.Allowed != PrecisionINT8 && p.Allowed != PrecisionAuto:
		return &OptionError{"bias_correction", "goes with the precision " + PrecisionINT8 + " or " + PrecisionAuto}
	}
	if method := p.ScaleMethod(); method != "" {
		if err := method.Validate(); err != nil {
			return &OptionError{"calibration_method", err.Error() + " or " + CalibrationAuto}
		}
	}
	if p.Measure == "" || slices.Contains(cost.Measures(), p.Measure) {
		return nil
	}
	if _, err := p.OwnMeasure(); err != nil {
		return &OptionError{"error_measure", err.Error()}
	}
	return nil
}

// NoBudget is what is wrong with an option that says how errors are taken where they are not.
const NoBudget = "goes with max_error, or with a precision other than " + PrecisionF32

func oneOf(names []string) string {
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// allows says that backends that compute so may be offered.
func (p *Precision) allows(precision byoc.Precision) bool {
	all := byoc.Precisions()
	if p.OnlyBytes && precision == byoc.BF16 {
		return false
	}
	return precision == byoc.F32 || p.Allowed == PrecisionAuto ||
		p.Narrow() && slices.Index(all, precision) <= slices.Index(all, byoc.Precision(p.Allowed))
}

// Offered are the backends that a placement may use: those that are named, and behind them those that compute the same
// narrowly (byoc.Narrow), as far as the precision allows it and they can be used here. Errors (*OptionError): one is
// named that the precision does not allow; none computes in just the precision that is allowed.
func (p *Precision) Offered(names []string) ([]string, error) {
	named, err := FindBackends(names)
	if err != nil {
		return nil, err
	}
	offered, narrow := slices.Clone(names), false
	for _, b := range named {
		if is := byoc.PrecisionOf(b); !p.allows(is) {
			return nil, &OptionError{"backends", fmt.Sprintf("has %s, which computes in %s: say precision %s, or %s, too",
				b.Name(), is, is, PrecisionAuto)}
		} else if string(is) == p.Allowed {
			narrow = true
		}
	}
	if !p.Narrow() {
		return offered, nil
	}
	reason := "none of the backends " + strings.Join(names, ", ") + " can"
	var able []string
	for _, b := range byoc.All() {
		is := byoc.PrecisionOf(b)
		if is == byoc.F32 || !p.allows(is) || slices.Contains(NamesOf(named), b.Name()) {
			continue
		}
		asked := string(is) == p.Allowed
		if asked {
			able = append(able, byoc.WideOf(b))
		}
		if !slices.Contains(NamesOf(named), byoc.WideOf(b)) {
			continue
		}
		if probe := b.Probe(); !probe.Usable {
			if asked {
				reason = fmt.Sprintf("%s cannot: %s", byoc.WideOf(b), probe.Reason)
			}
			continue
		}
		offered, narrow = append(offered, b.Name()), narrow || asked
	}
	if !narrow && p.Allowed != PrecisionAuto {
		if len(able) > 0 && strings.HasPrefix(reason, "none") {
			reason += " (" + strings.Join(able, ", ") + " can)"
		}
		return nil, &OptionError{"precision", fmt.Sprintf("is %s, in which nothing here computes: %s", p.Allowed, reason)}
	}
	return offered, nil
}
