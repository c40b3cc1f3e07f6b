// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"time"
)

// dispatching is how jobs, which are numbers from 0 on, are done by workers, each on a goroutine of its own. All but
// run is called on the goroutine of dispatch.
type dispatching[T any] struct {
	// workers and jobs are how many there are.
	workers, jobs int
	// poll says whether somebody wants it to end.
	poll func(ctx context.Context) error
	// prepare is called before a job is given to a worker; one that says done needs none. nil for nothing.
	prepare func(job int) (done bool, err error)
	// run does a job on a worker. It must not panic.
	run func(ctx context.Context, worker, job int) T
	// take gets what came of a job; of those too that were running when it was stopped by an error.
	take func(job int, result T, stopped bool) error
}

// dispatch does the jobs in their order. After the first error the context that run gets is at its end, no further job
// is begun, and the error is returned when the running ones have come back.
func (d *dispatching[T]) dispatch(ctx context.Context) error {
	if d.jobs == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		worker, job int
		result      T
	}
	outcomes := make(chan outcome)
	idle := make([]int, 0, d.workers)
	for worker := range d.workers {
		idle = append(idle, worker)
	}
	next, running := 0, 0
	var failure error
	stop := func(err error) {
		if failure == nil && err != nil {
			failure = err
			cancel()
		}
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		for failure == nil && len(idle) > 0 && next < d.jobs {
			job := next
			next++
			if d.prepare != nil {
				done, err := d.prepare(job)
				stop(err)
				if done || err != nil {
					continue
				}
			}
			worker := idle[len(idle)-1]
			idle = idle[:len(idle)-1]
			running++
			go func() { outcomes <- outcome{worker, job, d.run(ctx, worker, job)} }()
		}
		if running == 0 {
			return failure
		}
		select {
		case o := <-outcomes:
			running--
			idle = append(idle, o.worker)
			stop(d.take(o.job, o.result, failure != nil))
		case <-ticker.C:
			if failure == nil {
				stop(d.poll(ctx))
			}
		}
	}
}
