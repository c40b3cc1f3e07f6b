// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/collage-tvm/collage/pass/bound"
	"github.com/collage-tvm/collage/pass/cost"
)

// Machine is the calibration of this machine, from the store, or else made by a worker (a second or two) and then kept
// there. env says which machine and how many threads.
func (p *Pool) Machine(ctx context.Context, env cost.Environment) (*bound.Machine, error) {
	keys := bound.Keys(env)
	costs := make([]cost.Cost, len(keys))
	complete := true
	for i, key := range keys {
		found := false
		costs[i], found = p.options.Store.Lookup(key)
		complete = complete && found && costs[i].Known()
	}
	if complete {
		return bound.FromCosts(keys, costs)
	}
	samples, err := p.calibrate(ctx)
	if err != nil {
		return nil, err
	}
	if len(samples) != len(keys) {
		return nil, fmt.Errorf("measure: the calibration has %d parts, not %d", len(samples), len(keys))
	}
	for i, key := range keys {
		if err := p.options.Store.Put(key, cost.Cost{Samples: samples[i], Origin: cost.Measured,
			Taken: time.Now()}); err != nil {
			return nil, err
		}
		costs[i], _ = p.options.Store.Lookup(key) // with the digits that the next run will read
	}
	return bound.FromCosts(keys, costs)
}

// calibrate asks a worker; the samples are in the order of bound.Keys.
func (p *Pool) calibrate(ctx context.Context) ([][]float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		line []byte
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		line, err := p.askCalibration(ctx)
		done <- answer{line, err}
	}()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var interrupted error
	for {
		select {
		case a := <-done:
			if interrupted != nil {
				return nil, interrupted
			}
			if a.err != nil {
				return nil, a.err
			}
			var result calibrateResult
			if err := json.Unmarshal(a.line, &result); err != nil {
				return nil, fmt.Errorf("measure: the calibration is not readable: %w", err)
			}
			return append([][]float64{result.Flops}, result.Reads...), nil
		case <-ticker.C:
			if interrupted == nil {
				if interrupted = p.poll(ctx); interrupted != nil {
					cancel()
				}
			}
		}
	}
}

// askCalibration gives the worker's answer; nobody else is at work while it runs.
func (p *Pool) askCalibration(ctx context.Context) (line []byte, err error) {
	worker, started, err := p.worker(ctx, 0)
	p.stats.Started += started
	if err != nil {
		return nil, err
	}
	var refused error
	ask := func(ready bool) error {
		worker.lastID++
		err := worker.send(calibrateMessage{ID: worker.lastID, Op: "calibrate", Ready: ready,
			Threads: max(p.options.Threads, 1), Sizes: bound.Sizes})
		if err != nil {
			return worker.exit()
		}
		var r reply
		if r, line, err = worker.receive(ctx, p.options.BuildTimeout); err == nil && r.Event != "result" {
			refused = fmt.Errorf("measure: the worker cannot calibrate the machine: %s", r.Detail)
			return refused
		}
		return err
	}
	if err = ask(true); err == nil {
		done := p.alone()
		err = ask(false)
		done()
	}
	if refused != nil { // the worker is as good as before for whatever else it is asked for
		return nil, refused
	}
	if err != nil {
		p.slots[0] = nil
		worker.kill()
		return nil, fmt.Errorf("measure: calibrating the machine: %w", err)
	}
	return line, nil
}
