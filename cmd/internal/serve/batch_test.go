// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/cmd/internal/runmodel"
	"github.com/collage-tvm/collage/internal/npz"
)

// batchOf is how many rows the executors here compute, of two elements each.
const batchOf = 4

// rowwise gives f of the elements of its input, all rows below one another.
type rowwise struct {
	f func(elements []float32) []float32
	// seen is told the first element of each row of each run; may be nil.
	seen chan []float32
}

func (e rowwise) Infer(_ context.Context, inputs []npz.Array) ([]npz.Array, error) {
	elements := elementsOf(&inputs[0])
	if e.seen != nil {
		var first []float32
		for i := 0; i < len(elements); i += 2 {
			first = append(first, elements[i])
		}
		e.seen <- first
	}
	if slices.Contains(elements, -1) {
		return nil, errors.New("it is broken")
	}
	if slices.Contains(elements, -2) {
		panic("a defect")
	}
	return []npz.Array{arrayOf("y", e.f(elements))}, nil
}

func elementsOf(a *npz.Array) (elements []float32) {
	for part := range slices.Chunk(a.Data, 4) {
		elements = append(elements, math.Float32frombits(binary.LittleEndian.Uint32(part)))
	}
	return elements
}

func arrayOf(name string, elements []float32) npz.Array {
	a := npz.Array{Name: name, DType: "float32", Shape: []int64{int64(len(elements) / 2), 2}}
	for _, v := range elements {
		a.Data = binary.LittleEndian.AppendUint32(a.Data, math.Float32bits(v))
	}
	return a
}

func twice(elements []float32) []float32 {
	out := make([]float32, len(elements))
	for i, v := range elements {
		out[i] = 2 * v
	}
	return out
}

var takes = []runmodel.TensorInfo{{Name: "x", Shape: []int64{batchOf, 2}, DType: "float32"}}

func TestRowsThatHangOnOthersAreFound(t *testing.T) {
	for name, one := range map[string]struct {
		f    func(elements []float32) []float32
		want string
	}{
		"rows": {f: twice},
		"rows that are no numbers, and sums in another order": {f: func(elements []float32) []float32 {
			out := twice(elements)
			for i := range out {
				out[i] = float32(math.Sqrt(float64(out[i] - 1)))
			}
			for i := range out[:2] {
				out[i] *= 1 + 2e-7
			}
			return out
		}},
		"the mean of the batch": {func(elements []float32) []float32 {
			sum := float32(0)
			for _, v := range elements {
				sum += v
			}
			out := twice(elements)
			for i := range out {
				out[i] += sum / 8
			}
			return out
		}, "mixes rows"},
		"the row above": {func(elements []float32) []float32 {
			out := twice(elements)
			out[4] += elements[2]
			return out
		}, "mixes rows"},
		"the place in the batch": {func(elements []float32) []float32 {
			out := twice(elements)
			out[2]++
			return out
		}, "mixes rows"},
		"nothing":    {func(elements []float32) []float32 { return make([]float32, len(elements)) }, "all give the same"},
		"a row less": {func(elements []float32) []float32 { return elements[2:] }, "not one row for each"},
	} {
		err := CheckRows(t.Context(), rowwise{f: one.f}, takes, batchOf)
		if one.want == "" {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorContains(t, err, one.want, name)
		}
	}
}

func TestBatchOf(t *testing.T) {
	info := func(shape ...int64) []runmodel.TensorInfo {
		return []runmodel.TensorInfo{{Name: "x", Shape: shape, DType: "float32"}}
	}
	rows, err := BatchOf(info(4, 2), info(4))
	require.NoError(t, err)
	assert.Equal(t, int64(4), rows)
	rows, err = BatchOf(info(-1, 2), info(-1))
	require.NoError(t, err)
	assert.Equal(t, int64(AsMany), rows)
	named := func(name string, shape ...int64) []runmodel.TensorInfo {
		infos := info(shape...)
		infos[0].Name = name
		return infos
	}
	for want, one := range map[string][2][]runmodel.TensorInfo{
		"compiled for one row": {info(1, 2), info(1, 2)}, "has 3 rows": {info(4, 2), info(3)},
		"has no rows": {info(4, 2), info()}, "no inputs": {nil, info(4)},
		"open dimension beside":                                    {info(-1, -1), info(-1)},
		"y float32 [?, ?] has an open":                             {info(4, 2), named("y", -1, -1)},
		"input x float32 [?, 2] and the output y float32 [4] only": {info(-1, 2), named("y", 4)},
		"input x float32 [4, 2] and the output y float32 [?] only": {info(4, 2), named("y", -1)},
	} {
		_, err := BatchOf(one[0], one[1])
		assert.ErrorContains(t, err, want)
	}
}

func TestMostRows(t *testing.T) {
	input := func(domains ...*[2]int64) []runmodel.TensorInfo {
		var infos []runmodel.TensorInfo
		for _, domain := range domains {
			infos = append(infos, runmodel.TensorInfo{Name: "x", Shape: []int64{-1, 2}, DType: "float32",
				Domain: []*[2]int64{domain, nil}})
		}
		return infos
	}
	for want, domains := range map[int64][]*[2]int64{0: {nil}, 9: {nil, {1, 9}}, 5: {{1, 9}, {1, 5}}} {
		most, err := MostRows(input(domains...))
		require.NoError(t, err)
		assert.Equal(t, want, most)
	}
	for _, domain := range [][2]int64{{2, 9}, {1, 3}} {
		_, err := MostRows(input(&domain))
		assert.ErrorContains(t, err, "requests are gathered for models that take from 1 to 4 or more")
	}
}

// TestNoMoreRowsThanTheDomainHas gathers five requests of one and two rows where three may be computed at once.
func TestNoMoreRowsThanTheDomainHas(t *testing.T) {
	executor := &countingRows{}
	b := newBatcher(Batching{Rows: AsMany, Most: 3, Delay: 200 * time.Millisecond}, []Executor{executor},
		newMetrics("net", AsMany), func(e Executor, inputs []npz.Array) ([]npz.Array, error) {
			return e.Infer(context.Background(), inputs)
		})
	t.Cleanup(b.close)
	asked(t, b, []float32{1, 1, 1, 1}, []float32{2, 2, 2, 2}, []float32{3, 3}, []float32{4, 4}, []float32{5, 5})
	for _, rows := range executor.seen {
		assert.LessOrEqual(t, rows, int64(3))
	}
	assert.Less(t, len(executor.seen), 5, "some were gathered")
}

// countingRows gives back what it gets, and notes how many rows that were.
type countingRows struct {
	mu   sync.Mutex
	seen []int64
}

func (e *countingRows) Infer(_ context.Context, inputs []npz.Array) ([]npz.Array, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, inputs[0].Shape[0])
	return inputs, nil
}

func batching(t *testing.T, executor Executor, delay time.Duration) *batcher {
	return batchingOf(t, batchOf, executor, delay)
}

func batchingOf(t *testing.T, rows int64, executor Executor, delay time.Duration) *batcher {
	b := newBatcher(Batching{Rows: rows, Delay: delay}, []Executor{executor}, newMetrics("net", rows),
		func(e Executor, inputs []npz.Array) ([]npz.Array, error) {
			return e.Infer(context.Background(), inputs)
		})
	t.Cleanup(b.close)
	return b
}

// asked sends requests, each once the one before waits; the elements of each are given back.
func asked(t *testing.T, b *batcher, requests ...[]float32) [][]float32 {
	t.Helper()
	answers := make([][]float32, len(requests))
	var group sync.WaitGroup
	for i, elements := range requests {
		group.Go(func() {
			outputs, err := b.infer(t.Context(), []npz.Array{arrayOf("x", elements)})
			if assert.NoError(t, err) {
				answers[i] = elementsOf(&outputs[0])
				assert.Equal(t, []int64{int64(len(elements) / 2), 2}, outputs[0].Shape)
			}
		})
	}
	group.Wait()
	return answers
}

// A batch that is full does not wait; each request has its own rows.
func TestAFullBatch(t *testing.T) {
	b := batching(t, rowwise{f: twice, seen: make(chan []float32, 1)}, time.Hour)
	answers := asked(t, b, []float32{1, 2}, []float32{3, 4, 5, 6, 7, 8})
	assert.Equal(t, [][]float32{{2, 4}, {6, 8, 10, 12, 14, 16}}, answers)
}

// What does not fit is in the next batch; a batch that is not full has its last row again.
func TestWhatDoesNotFit(t *testing.T) {
	e := rowwise{f: twice, seen: make(chan []float32, 8)}
	b := batching(t, e, 10*time.Millisecond)
	answers := asked(t, b, []float32{1, 2, 3, 4, 5, 6}, []float32{7, 8, 9, 10, 11, 12})
	assert.Equal(t, [][]float32{{2, 4, 6, 8, 10, 12}, {14, 16, 18, 20, 22, 24}}, answers)
	runs := [][]float32{<-e.seen, <-e.seen}
	slices.SortFunc(runs, slices.Compare)
	assert.Equal(t, [][]float32{{1, 3, 5, 5}, {7, 9, 11, 11}}, runs)
}

// A model whose first dimension is open has as many rows as came, and no copies.
func TestAsManyRowsAsCame(t *testing.T) {
	e := rowwise{f: twice, seen: make(chan []float32, 8)}
	b := batchingOf(t, AsMany, e, 100*time.Millisecond)
	many := make([]float32, 2*20)
	answers := asked(t, b, []float32{1, 2, 3, 4, 5, 6}, many, []float32{7, 8})
	assert.Equal(t, [][]float32{{2, 4, 6, 8, 10, 12}, many, {14, 16}}, answers)
	rows := 0
	for len(e.seen) > 0 {
		rows += len(<-e.seen)
	}
	assert.Equal(t, 3+20+1, rows)
}

// What hangs on how many rows there are is seen by runs on fewer.
func TestRowsThatHangOnTheirNumberAreFound(t *testing.T) {
	open := []runmodel.TensorInfo{{Name: "x", Shape: []int64{-1, 2}, DType: "float32", Tried: []int64{2, 2}}}
	assert.NoError(t, CheckRows(t.Context(), rowwise{f: twice}, open, AsMany))
	for want, f := range map[string]func(elements []float32) []float32{
		"another one among 1 rows than among 4": func(elements []float32) []float32 {
			out := twice(elements)
			for i := range out {
				out[i] += float32(len(elements))
			}
			return out
		},
		"not one row for each": func(elements []float32) []float32 { return twice(elements)[:min(len(elements), 4)] },
		"mixes rows": func(elements []float32) []float32 {
			out := twice(elements)
			out[0] += elements[len(elements)-1]
			return out
		},
	} {
		assert.ErrorContains(t, CheckRows(t.Context(), rowwise{f: f}, open, AsMany), want)
	}
}

func TestABatchThatFails(t *testing.T) {
	for sign, want := range map[float32]string{-1: "it is broken", -2: "a defect"} {
		b := batching(t, rowwise{f: twice}, time.Hour)
		errs := make(chan error)
		for _, elements := range [][]float32{{sign, 0}, {1, 2, 3, 4, 5, 6}} {
			go func() {
				_, err := b.infer(t.Context(), []npz.Array{arrayOf("x", elements)})
				errs <- err
			}()
		}
		for range 2 {
			assert.ErrorContains(t, <-errs, want)
		}
		assert.Equal(t, [][]float32{{2, 2, 2, 2, 2, 2, 2, 2}}, asked(t, b, []float32{1, 1, 1, 1, 1, 1, 1, 1}))
	}
}

func TestWhoHasGoneIsNotComputed(t *testing.T) {
	e := rowwise{f: twice, seen: make(chan []float32, 8)}
	b := batching(t, e, time.Hour)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.infer(gone, []npz.Array{arrayOf("x", []float32{9, 9})})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, [][]float32{{2, 4, 6, 8, 10, 12, 14, 16}}, asked(t, b, []float32{1, 2, 3, 4, 5, 6, 7, 8}))
	assert.Equal(t, []float32{1, 3, 5, 7}, <-e.seen)
}

func TestRequestsOfAnyRows(t *testing.T) {
	open := func(name string) []runmodel.TensorInfo {
		return []runmodel.TensorInfo{{Name: name, Shape: []int64{-1, 2}, DType: "float32", Tried: []int64{2, 2}}}
	}
	s := New(Options{Name: "net", Inputs: open("x"), Outputs: open("y"), Executors: []Executor{rowwise{f: twice}},
		Queue: 8, MostBytes: 1 << 16, Batching: Batching{Rows: AsMany, Delay: time.Microsecond}})
	defer s.End()
	body := `{"inputs": [{"name": "x", "shape": [%s, 2], "datatype": "FP32", "data": [%s]}]}`
	code, said, _ := ask(t, s, "POST", inferPath, fmt.Sprintf(body, "5", "1,2,3,4,5,6,7,8,9,0"))
	assert.Equal(t, 200, code)
	assert.Contains(t, said, `"shape":[5,2]`)
	code, said, _ = ask(t, s, "POST", inferPath, fmt.Sprintf(body, "0", ""))
	assert.Equal(t, 400, code)
	assert.Contains(t, said, "0 rows; a request has 1 or more")
	_, said, _ = ask(t, s, "GET", "/metrics", "")
	assert.Contains(t, said, `collage_batch_rows_sum{model="net"} 5`)
	assert.Contains(t, said, `collage_batch_rows_bucket{model="net",le="1024"} 1`)
}

func TestRequestsOfSomeRows(t *testing.T) {
	s := New(Options{Name: "net", Inputs: takes, Outputs: []runmodel.TensorInfo{{Name: "y", Shape: []int64{batchOf, 2},
		DType: "float32"}}, Executors: []Executor{rowwise{f: twice}}, Queue: 8, MostBytes: 1 << 16,
		Batching: Batching{Rows: batchOf, Delay: time.Microsecond}})
	defer s.End()
	body := func(shape, data string) string {
		return `{"inputs": [{"name": "x", "shape": ` + shape + `, "datatype": "FP32", "data": ` + data + `}]}`
	}
	code, said, _ := ask(t, s, "POST", inferPath, body("[1, 2]", "[1, 2]"))
	assert.Equal(t, 200, code)
	assert.JSONEq(t, `{"model_name": "net", "model_version": "1",
		"outputs": [{"name": "y", "shape": [1, 2], "datatype": "FP32", "data": [2, 4]}]}`, said)
	for shape, want := range map[string]string{"[5, 2]": "5 rows; a request may have 1 to 4", "[0, 2]": "0 rows",
		"[1, 3]": "has the shape [1, 3]", "[]": "has the shape []"} {
		data := map[string]string{"[5, 2]": "[1,2,3,4,5,6,7,8,9,0]", "[0, 2]": "[]", "[1, 3]": "[1,2,3]", "[]": "[1]"}
		code, said, _ := ask(t, s, "POST", inferPath, body(shape, data[shape]))
		assert.Equal(t, 400, code)
		assert.Contains(t, said, want)
	}
	_, said, _ = ask(t, s, "GET", "/v2/models/net", "")
	assert.Contains(t, said, `"shape":[-1,2]`)
	_, said, _ = ask(t, s, "GET", "/metrics", "")
	assert.Contains(t, said, `collage_batch_rows_sum{model="net"} 1`)
	assert.Contains(t, said, `collage_batch_requests_count{model="net"} 1`)
}

func TestARequestOfMoreRowsThanTheDomainHas(t *testing.T) {
	s := &Server{options: Options{Inputs: []runmodel.TensorInfo{{Name: "x", Shape: []int64{-1, 2}, DType: "float32"}},
		Batching: Batching{Rows: AsMany, Most: 3}}}
	_, err := s.check([]npz.Array{arrayOf("x", make([]float32, 6))})
	require.NoError(t, err)
	_, err = s.check([]npz.Array{arrayOf("x", make([]float32, 8))})
	assert.ErrorContains(t, err, `the input "x" has 4 rows; the model was compiled for 1 to 3`)
}
