// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/collage-tvm/collage/internal/npz"
)

// AsMany is the Rows of a model whose first dimension is open: it computes as many as it is given.
const AsMany = -1

// Batching has requests of fewer rows than the model computes gathered up to those (BatchOf, CheckRows).
type Batching struct {
	// Rows is how many the model computes, or AsMany; 0 gathers nothing.
	Rows int64
	// Most is how many rows a model may be given that computes AsMany (MostRows); 0 for as many as there are.
	Most int64
	// Delay is how long the first request of a batch waits for others.
	Delay time.Duration
}

// batcher gathers requests. Whoever computes takes them one after the other, as many as fit; while one executor
// computes, the next batch is gathered for another.
type batcher struct {
	Batching
	asked   chan *member
	compute func(executor Executor, inputs []npz.Array) ([]npz.Array, error)
	metrics *metrics
	ended   chan struct{}
	// gathering is held by who gathers; left is what did not fit into the batch before.
	gathering sync.Mutex
	left      *member
	executors sync.WaitGroup
}

// member is a request in a batch.
type member struct {
	ctx    context.Context
	inputs []npz.Array // in the model's order
	rows   int64
	answer chan answer
}

type answer struct {
	outputs []npz.Array
	err     error
}

func newBatcher(batching Batching, executors []Executor, metrics *metrics,
	compute func(Executor, []npz.Array) ([]npz.Array, error)) *batcher {
	b := &batcher{Batching: batching, asked: make(chan *member), compute: compute, metrics: metrics,
		ended: make(chan struct{})}
	for _, executor := range executors {
		b.executors.Go(func() {
			for members := b.gather(); members != nil; members = b.gather() {
				b.run(executor, members)
			}
		})
	}
	return b
}

// close ends it; nobody may ask any more.
func (b *batcher) close() {
	close(b.ended)
	b.executors.Wait()
}

// infer gives the outputs of some rows.
func (b *batcher) infer(ctx context.Context, inputs []npz.Array) ([]npz.Array, error) {
	m := &member{ctx: ctx, inputs: inputs, rows: inputs[0].Shape[0], answer: make(chan answer, 1)}
	select {
	case b.asked <- m:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case a := <-m.answer:
		return a.outputs, a.err
	case <-ctx.Done(): // its rows may be computed all the same
		return nil, ctx.Err()
	}
}

// gather waits for a request, and for others as long as there is room and time; nil at the end.
func (b *batcher) gather() (members []*member) {
	b.gathering.Lock()
	defer b.gathering.Unlock()
	rows := int64(0)
	take := func(m *member) (full bool) {
		switch {
		case m.ctx.Err() != nil: // nobody waits for it
		case b.Rows != AsMany && rows+m.rows > b.Rows, b.Most > 0 && len(members) > 0 && rows+m.rows > b.Most:
			b.left = m
			return true
		default:
			members, rows = append(members, m), rows+m.rows
		}
		return rows == b.Rows || b.Most > 0 && rows >= b.Most
	}
	if m := b.left; m != nil {
		b.left = nil
		if take(m) {
			return members
		}
	}
	for len(members) == 0 {
		select {
		case m := <-b.asked:
			if take(m) {
				return members
			}
		case <-b.ended:
			return nil
		}
	}
	late := time.NewTimer(b.Delay)
	defer late.Stop()
	for {
		select {
		case m := <-b.asked:
			if take(m) {
				return members
			}
		case <-late.C:
			return members
		case <-b.ended:
			return members
		}
	}
}

// run computes a batch and gives each request its rows. Where it fails, it fails for all.
func (b *batcher) run(executor Executor, members []*member) {
	rows := int64(0)
	for _, m := range members {
		rows += m.rows
	}
	b.metrics.batched(len(members), rows)
	computed := b.Rows
	if computed == AsMany {
		computed = rows
	}
	outputs, err := b.whole(executor, joined(members, rows, computed))
	for i := range outputs {
		if shape := outputs[i].Shape; err == nil && (len(shape) == 0 || shape[0] != computed) {
			err = fmt.Errorf("the output %q has the shape %v in place of %d rows", outputs[i].Name, shape, computed)
		}
	}
	at := int64(0)
	for _, m := range members {
		if err != nil {
			m.answer <- answer{err: err}
			continue
		}
		m.answer <- answer{outputs: rowsOf(outputs, at, m.rows, computed)}
		at += m.rows
	}
}

// whole computes a batch. A panic is an error of its requests, as it is where the server computes each by itself.
func (b *batcher) whole(executor Executor, inputs []npz.Array) (outputs []npz.Array, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error: %v", r)
		}
	}()
	return b.compute(executor, inputs)
}

// joined are the inputs of all, one below the other: rows of them, and computed in all. What is left of the batch has
// the last row again, which is a row that the model takes.
func joined(members []*member, rows, computed int64) []npz.Array {
	if len(members) == 1 && rows == computed {
		return members[0].inputs
	}
	inputs := make([]npz.Array, len(members[0].inputs))
	for k := range inputs {
		first := members[0].inputs[k]
		a := npz.Array{Name: first.Name, DType: first.DType, Shape: append([]int64{computed}, first.Shape[1:]...)}
		row := len(first.Data) / int(first.Shape[0])
		a.Data = make([]byte, 0, row*int(computed))
		for _, m := range members {
			a.Data = append(a.Data, m.inputs[k].Data...)
		}
		for range computed - rows {
			a.Data = append(a.Data, a.Data[len(a.Data)-row:]...)
		}
		inputs[k] = a
	}
	return inputs
}

// rowsOf are so many rows of outputs, from one on; the bytes are shared.
func rowsOf(outputs []npz.Array, from, rows, of int64) []npz.Array {
	part := make([]npz.Array, len(outputs))
	for k, a := range outputs {
		size := int64(len(a.Data)) / of
		a.Shape = append([]int64{rows}, a.Shape[1:]...)
		a.Data = a.Data[from*size : (from+rows)*size : (from+rows)*size]
		part[k] = a
	}
	return part
}
