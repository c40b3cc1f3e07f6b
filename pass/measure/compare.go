// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
)

// Model is an exported model (a graph executor factory in a shared library).
type Model struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// Rounds is in how many of the rounds it is run, from the first on; 0 for all.
	Rounds int `json:"rounds,omitempty"`
	// Narrow says that it computes in a narrower type than the network's: how far its outputs may be off is said
	// elsewhere (Networks.Errors).
	Narrow bool `json:"narrow,omitempty"`
}

// CompareOptions say how models are compared.
type CompareOptions struct {
	// Rounds is how often each model is run; 0 for 20.
	Rounds int
	// Seed makes the random inputs.
	Seed int
	// Doubt is as of NetworkRun.
	Doubt float64
	// HeldOut are inputs on which it is told how far models are off (OutputCheck.Errors); may be empty. Measure is as of
	// Inputs.
	HeldOut []Input
	Measure *OwnMeasure
	// Progress is called on the caller's goroutine after each round. May be nil.
	Progress func(round, rounds int)
}

// OutputCheck compares a model's outputs with those of the first model.
type OutputCheck struct {
	MaxError float64
	OK       bool
	// Mismatch says where they differ by more than the tolerance; "" where they do not, and of what is Model.Narrow.
	Mismatch string
	// Errors say how far the outputs are off on CompareOptions.HeldOut; nil without those.
	Errors *cost.Errors
}

// Comparison is what Compare found, by the models' names.
type Comparison struct {
	Costs map[string]cost.Cost
	// Outputs has no entry for the first model.
	Outputs map[string]OutputCheck
	// Points are the sizes at which models were run whose open dimensions have domains, of which the samples are means;
	// none of other models.
	Points []cost.Point
}

// Compare runs finished models on the same random inputs in turn (A B C A B C ...), so that what else happens on the
// machine falls on all of them alike. It takes a fresh worker.
func (p *Pool) Compare(ctx context.Context, models []Model, options CompareOptions) (*Comparison, error) {
	if len(models) == 0 {
		return nil, errors.New("measure: no models to compare")
	}
	if options.Rounds <= 0 {
		options.Rounds = 20
	}
	named := make([]Model, len(models))
	for i, m := range models {
		path, err := filepath.Abs(m.Path) // the worker's folder is another one
		if err != nil {
			return nil, fmt.Errorf("measure: comparing models: %w", err)
		}
		named[i] = m
		named[i].Path = path
	}
	defer p.alone()()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rounds := make(chan int)
	type answer struct {
		comparison *Comparison
		err        error
	}
	answers := make(chan answer, 1)
	go func() {
		comparison, err := p.compare(ctx, named, options, rounds)
		answers <- answer{comparison, err}
	}()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var interrupt error
	for {
		select {
		case round := <-rounds:
			if options.Progress != nil {
				options.Progress(round, options.Rounds)
			}
		case <-ticker.C:
			if interrupt == nil {
				if interrupt = p.poll(ctx); interrupt != nil {
					cancel()
				}
			}
		case a := <-answers:
			p.stats.Started++
			if interrupt != nil {
				return nil, interrupt
			}
			return a.comparison, a.err
		}
	}
}

// compare is the part of Compare that waits for the worker.
func (p *Pool) compare(ctx context.Context, models []Model, options CompareOptions,
	rounds chan<- int) (comparison *Comparison, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("measure: comparing models: %v", r)
		}
	}()
	worker, err := startProcess(ctx, &p.options, p.dir, roleComparing)
	if err != nil {
		return nil, err
	}
	defer worker.kill()
	worker.lastID++
	taken := time.Now()
	message := compareMessage{ID: worker.lastID, Op: "compare", Models: models, Rounds: options.Rounds,
		Threads: p.options.Threads, Seed: options.Seed, RTol: networkRTol,
		ATol: shareOfAll(options.Doubt), ATolOfEach: shareOfGreatest,
		HeldOut: options.HeldOut, Measure: options.Measure}
	if err := worker.send(message); err != nil {
		return nil, fmt.Errorf("measure: comparing models: %w", worker.exit())
	}
	for {
		// Each message shows that the worker lives, so the limit is for one round (the first loads the models as well).
		r, line, err := worker.receive(ctx, p.options.BuildTimeout)
		if err != nil {
			if errors.Is(err, errTimeout) {
				err = fmt.Errorf("no answer within %v", p.options.BuildTimeout)
			}
			return nil, fmt.Errorf("measure: comparing models: %w", err)
		}
		switch r.Event {
		case "progress":
			select {
			case rounds <- r.Round:
			case <-ctx.Done():
			}
		case "error":
			return nil, fmt.Errorf("measure: comparing models: %s: %s", r.Phase, r.Detail)
		case "result":
			var result compareResult
			if err := json.Unmarshal(line, &result); err != nil {
				return nil, fmt.Errorf("measure: comparing models: the worker's result is not readable: %w", err)
			}
			comparison = &Comparison{Costs: map[string]cost.Cost{}, Outputs: map[string]OutputCheck{},
				Points: result.Points}
			for _, m := range models {
				if seen := result.Outputs[m.Name]; seen != nil {
					check := OutputCheck{MaxError: seen.greatest(), Mismatch: seen.mismatch(), Errors: result.Errors[m.Name]}
					if m.Narrow {
						check.Mismatch = ""
					}
					check.OK = check.Mismatch == ""
					comparison.Outputs[m.Name] = check
				}
				c := cost.Cost{Samples: result.Samples[m.Name], Origin: cost.Measured, Taken: taken}
				if err := c.Validate(); err != nil {
					return nil, fmt.Errorf("measure: comparing models: %s: %w", m.Name, err)
				}
				comparison.Costs[m.Name] = c
			}
			return comparison, nil
		default:
			return nil, fmt.Errorf("measure: comparing models: the worker sent the unknown event %q", r.Event)
		}
	}
}
