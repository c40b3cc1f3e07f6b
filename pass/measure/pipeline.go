// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
)

const (
	// mostInTurn is how many candidates are timed in turn at most; fewestInTurn are not timed while more are on
	// their way.
	mostInTurn   = 12
	fewestInTurn = 4
)

// task is a job on its way.
type task struct {
	*job
	prepared cost.Cost
	samples  []float64
}

// pipeline is one call of Pool.pipeline.
type pipeline struct {
	*Pool
	take func(j *job, c cost.Cost, absent bool) error
	// waiting tasks are not built yet, or not prepared; ready ones are built, run and checked, and are timed in turn
	// once they are in turns.
	waiting, ready, turns []*task
	next                  int  // the place in turns
	awake                 bool // one of turns has been timed
	outcomes              chan outcome
	loading               chan loading
	busy                  bool
	current               *task
}

// pipeline measures jobs while the builders build for the next ones. Three things happen to a job: its code and that of
// what it is checked against is built, many jobs at once; it is loaded, run and checked; and it is timed, several jobs
// in turn (A B C A B C ...), which is when the builders stand still.
func (p *Pool) pipeline(ctx context.Context, jobs []*job, take func(j *job, c cost.Cost, absent bool) error) error {
	if len(jobs) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &pipeline{Pool: p, take: take, outcomes: make(chan outcome, 1), loading: make(chan loading, 1)}
	for _, j := range jobs {
		l.waiting = append(l.waiting, &task{job: j})
		if p.needsCode(j) {
			p.ahead.want(j.request, nil)
		}
	}
	defer p.ahead.resume()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	failure := p.poll(ctx)
	for {
		if failure == nil && !l.busy {
			failure = l.act(ctx)
		}
		if failure == nil {
			failure = p.ahead.dispatch()
		}
		if failure != nil {
			cancel()
		}
		if !l.busy && (failure != nil || len(l.waiting)+len(l.ready)+len(l.turns) == 0) {
			return failure
		}
		select {
		case o := <-l.outcomes:
			l.busy = false
			if err := l.finish(o); failure == nil {
				failure = err
			}
		case o := <-l.loading:
			l.busy = false
			if o.fresh {
				p.ahead.forget()
			}
			p.ahead.load(o.batch, o.ok)
			if !o.alive {
				p.lose()
			}
		case t := <-p.ahead.done:
			p.ahead.finish(t)
		case <-ticker.C:
			if failure == nil {
				failure = p.poll(ctx)
			}
		}
	}
}

// needsCode says that plain TVM's code is wanted for a job: to be measured, or to be checked against.
func (p *Pool) needsCode(j *job) bool { return !j.again }

// lose says that the worker that measures is gone, with all that it had loaded.
func (p *Pool) lose() {
	if worker := p.slots[0]; worker != nil {
		p.slots[0] = nil
		worker.kill()
	}
	p.ahead.forget()
}

// act gives the worker that measures something to do, if there is anything.
func (l *pipeline) act(ctx context.Context) error {
	for {
		if len(l.turns) > 0 {
			l.current = l.turns[l.next]
			j := *l.current.job
			j.again, j.samples = true, min(turn, j.samples-len(l.current.samples))
			j.awake, l.awake = l.awake, true
			l.ask(ctx, &j)
			return nil
		}
		if len(l.ahead.loads) > 0 {
			l.load(ctx)
			return nil
		}
		at := slices.IndexFunc(l.waiting, func(t *task) bool {
			return !l.needsCode(t.job) ||
				l.ahead.settled(t.request)
		})
		if at >= 0 && len(l.ready) < mostInTurn {
			t := l.waiting[at]
			l.waiting = slices.Delete(l.waiting, at, at+1)
			if failure, ok := l.absent[t.request.Key.Backend]; ok {
				if err := l.take(t.job, cost.FromFailure(failure, time.Now()), true); err != nil {
					return err
				}
				continue
			}
			if t.workload == nil {
				workload, err := t.request.Build()
				if err != nil {
					return fmt.Errorf("measure: %s: %w", t.request.Label, err)
				}
				t.workload = workload
			}
			l.current = t
			j := *t.job
			j.prepare, j.samples = true, 0
			l.ask(ctx, &j)
			return nil
		}
		if len(l.ready) >= mostInTurn || len(l.ready) > 0 && (len(l.waiting) == 0 || len(l.ready) >= fewestInTurn) {
			l.turns, l.ready, l.next, l.awake = l.ready, nil, 0, false
			l.ahead.pause()
			continue
		}
		return nil
	}
}

func (l *pipeline) ask(ctx context.Context, j *job) {
	l.busy = true
	go func() { l.outcomes <- l.run(ctx, 0, j) }()
}

// loading is what became of telling the worker that measures of a batch.
type loading struct {
	batch *batch
	// ok: it is loaded; alive: the worker is there still; fresh: it is another one than before.
	ok, alive, fresh bool
}

// load tells it of the oldest one.
func (l *pipeline) load(ctx context.Context) {
	o := loading{batch: l.ahead.loads[0]}
	l.ahead.loads = l.ahead.loads[1:]
	l.busy = true
	go func() {
		defer func() {
			if recover() != nil {
				o.ok, o.alive = false, false
			}
			l.loading <- o
		}()
		o.ok, o.alive, o.fresh = l.tell(ctx, o.batch.manifest)
	}()
}

func (p *Pool) tell(ctx context.Context, manifest string) (ok, alive, fresh bool) {
	worker, started, err := p.worker(ctx, 0)
	p.stats.Started += started
	if err != nil {
		return false, true, true // there is nothing to end; whoever measures hears the same
	}
	worker.lastID++
	if worker.send(loadMessage{ID: worker.lastID, Op: "load", Manifest: manifest}) != nil {
		return false, false, started > 0
	}
	r, _, err := worker.receive(ctx, p.options.BuildTimeout)
	return err == nil && r.Event == "result", err == nil, started > 0
}

// finish takes what became of the current task.
func (l *pipeline) finish(o outcome) error {
	t := l.current
	l.stats.Started += o.started
	// The worker is another one, or none.
	if o.started > 0 || l.slots[0] == nil {
		l.ahead.forget()
	}
	timed := len(l.turns) > 0
	var err error
	switch {
	case o.err != nil:
		err = o.err
	case o.absent || o.cost.Failed():
		err = l.take(t.job, o.cost, o.absent)
		if timed {
			l.leave()
		}
	case !timed:
		t.prepared = o.cost
		l.ready = append(l.ready, t)
	default:
		t.samples = append(t.samples, o.cost.Samples...)
		if len(t.samples) < t.job.samples {
			l.next = (l.next + 1) % len(l.turns)
			break
		}
		c := o.cost
		c.Samples, c.MaxError = t.samples, t.prepared.MaxError
		err = l.take(t.job, c, false)
		l.leave()
	}
	if timed && len(l.turns) == 0 {
		l.ahead.resume()
	}
	return err
}

// leave takes the current task out of the turns.
func (l *pipeline) leave() {
	l.turns = slices.Delete(l.turns, l.next, l.next+1)
	if l.next >= len(l.turns) {
		l.next = 0
	}
}
