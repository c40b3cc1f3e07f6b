// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"cmp"
	"context"

	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// made makes scales of what was seen of values, by the method that was asked for, or by that one by which a watched
// executable's results are off the least. The failure says why none could be compared. Errors: as Build's.
func (l *Lane) made(ctx context.Context, model string, results int, values []relay.NodeID, seen *measure.Watched) (
	*cost.Scales, *cost.Failure, error) {
	methods, chosen := []rounding.Method{l.options.ScaleMethod}, 0
	if l.options.ScaleMethod == "" {
		methods = rounding.Methods()
	}
	steps, scales := stepsOf(seen, methods), &cost.Scales{Inputs: seen.Inputs}
	if len(methods) > 1 {
		errors, inputs, why, err := l.pool.Rounded(ctx, model, results, steps, l.options.Inputs)
		if why != nil && why.Kind == cost.KindBadMeasure {
			return nil, nil, badMeasure(why)
		}
		if err != nil || why != nil {
			return nil, why, err
		}
		chosen, scales.Tried = least(methods, errors, l.options.ErrorMeasure)
		scales.Compared = inputs
	}
	scales.Method = string(methods[chosen])
	for i, v := range values {
		scales.Values = append(scales.Values, cost.Scale{Value: int32(v), Learnt: seen.Values[i].Learnt(steps[chosen][i])})
	}
	return scales, nil, nil
}

// badMeasure says that a user's measure of errors gives none: that is his to mend, and nothing to be kept.
func badMeasure(why *cost.Failure) error {
	return &settings.OptionError{Option: "error_measure", Reason: "gives no error: " + why.Detail}
}

// stepsOf are the steps that each method makes of what was seen.
func stepsOf(seen *measure.Watched, methods []rounding.Method) [][]rounding.Steps {
	steps := make([][]rounding.Steps, len(methods))
	for i, method := range methods {
		for k := range seen.Values {
			steps[i] = append(steps[i], seen.Values[k].StepsBy(method))
		}
	}
	return steps
}

// least is which method has the least error in a measure, of equal ones that with the least by its length, of still
// equal ones the first; and what each was off by.
func least(methods []rounding.Method, errors []cost.Errors, in string) (at int, tried []cost.ScaleMethod) {
	for i, method := range methods {
		off := errors[i].In(in)
		tried = append(tried, cost.ScaleMethod{Method: string(method), Error: off})
		if cmp.Or(cmp.Compare(off, errors[at].In(in)), cmp.Compare(errors[i].L2, errors[at].L2)) < 0 {
			at = i
		}
	}
	return at, tried
}
