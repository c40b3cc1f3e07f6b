// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"context"
	"fmt"
	"os"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/settings"
)

// decideBiases finds out whether the outputs of a placement are off by less where its biases are corrected; scales, which
// were just found, have the result. It leaves the better of the two built.
func (l *Lane) decideBiases(ctx context.Context, p *genome.Placement, scales *cost.Scales) error {
	is := l.network.Biases()
	if is == settings.BiasesOn {
		scales.Biases = &cost.Biases{Corrected: true}
	}
	if is != settings.BiasesAuto || !l.network.Corrects(p) {
		return nil
	}
	l.options.Progress("comparing biases")
	built, err := l.variants(ctx, p, scales)
	if err != nil {
		return err
	}
	var off [2]float64
	for i, e := range built {
		errors, err := l.compared(ctx, e)
		if err != nil {
			return err
		}
		if errors == nil {
			scales.Biases = nil
			return nil
		}
		off[i] = errors.In(l.options.ErrorMeasure)
	}
	better := 0
	if off[1] < off[0] {
		better = 1
	}
	scales.Biases = &cost.Biases{Corrected: better == 1, Without: &off[0], With: &off[1]}
	l.built[p.Key] = built[better]
	return os.Remove(built[1-better].Path)
}

// variants builds a placement with its biases as they are and with these corrected, side by side.
func (l *Lane) variants(ctx context.Context, p *genome.Placement, scales *cost.Scales) (built [2]*Executable,
	err error) {
	var jobs []measure.NetworkBuild
	for i, corrected := range []bool{false, true} {
		scales.Biases = &cost.Biases{Corrected: corrected}
		l.learn(&cost.Cost{Scales: scales})
		job, e, err := l.job(p, fmt.Sprintf("-biases-%v", corrected))
		if err != nil {
			return built, err
		}
		jobs, built[i] = append(jobs, job), e
	}
	return built, l.pool.Build(ctx, jobs, len(jobs), func(i int, b *measure.NetworkBuilt) error {
		l.finish(built[i], p.Key, b)
		return nil
	})
}

// compared is how far an executable's outputs are off on the inputs on which methods are compared; nil where it cannot be
// run, of which its own build and measurement will tell.
func (l *Lane) compared(ctx context.Context, e *Executable) (*cost.Errors, error) {
	plain := l.built[l.plain.Key]
	if e.Failure != nil || plain == nil || plain.Failure != nil || len(l.options.Inputs.Compared) == 0 {
		return nil, nil
	}
	// Whatever was held out is not looked at.
	inputs := measure.Inputs{Searched: l.options.Inputs.Compared, HeldOut: l.options.Inputs.Compared[:1],
		Measure: l.options.Inputs.Measure}
	c, err := l.pool.Run(ctx, measure.NetworkRun{Model: e.Path, Reference: plain.Path, Against: plain.Path, Narrow: true,
		Step: 1, Rounds: 1, Inputs: &inputs})
	if err != nil || c.Failed() {
		return nil, err
	}
	return c.Network.Errors, nil
}
