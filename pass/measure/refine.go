// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"slices"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
)

// turn is how many samples are taken of one candidate before it is the next one's turn.
const turn = 5

// Refine takes further samples of candidates that were measured before, so many of each, in turn (A B A B), so that
// whatever slows the machine down for a while slows all of them. The samples are added to those in the store: the new
// record of a key holds all of them. It gives the costs in the order of the requests, whose keys must differ; one that
// fails now has failed. Errors: as Estimate's.
func (p *Pool) Refine(ctx context.Context, requests []cost.Request, samples int) ([]cost.Cost, error) {
	defer p.alone()()
	costs := make([]cost.Cost, len(requests))
	index := map[cost.Key]int{}
	for i := range requests {
		costs[i], _ = p.options.Store.Lookup(requests[i].Key)
		index[requests[i].Key] = i
	}
	fresh := make([][]float64, len(requests))
	workloads := make([]*cost.Workload, len(requests))
	var failure error
	for taken := 0; taken < samples && failure == nil; taken += turn {
		var jobs []*job
		for i := range requests {
			r := requests[i]
			if !costs[i].Known() {
				continue
			}
			build := r.Build
			r.Build = func() (*cost.Workload, error) {
				if workloads[i] == nil {
					w, err := build()
					if err != nil {
						return nil, err
					}
					workloads[i] = w
				}
				return workloads[i], nil
			}
			jobs = append(jobs, &job{request: &r, samples: min(turn, samples-taken), again: true,
				awake: taken > 0 || len(jobs) > 0})
		}
		failure = p.measure(ctx, jobs, func(j *job, c cost.Cost, absent bool) error {
			i := index[j.request.Key]
			if c.Failed() {
				costs[i] = c
				if absent {
					p.absent[j.request.Key.Backend] = *c.Failure
					return nil
				}
				return p.options.Store.Put(j.request.Key, c)
			}
			fresh[i] = append(fresh[i], c.Samples...)
			return nil
		})
	}
	// After an interrupt, too: what was measured is kept.
	for i := range requests {
		if costs[i].Failed() || len(fresh[i]) == 0 {
			continue
		}
		p.stats.Resampled++
		c := costs[i]
		c.Samples = slices.Concat(c.Samples, fresh[i])
		c.Origin, c.Taken = cost.Measured, time.Now()
		if err := p.options.Store.Put(requests[i].Key, c); err != nil && failure == nil {
			failure = err
		}
		costs[i] = c
		if kept, found := p.options.Store.Lookup(requests[i].Key); found {
			costs[i] = kept // with the digits that the next run will read
		}
	}
	return costs, failure
}
