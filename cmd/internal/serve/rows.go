// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/collage-tvm/collage/cmd/internal/runmodel"
	"github.com/collage-tvm/collage/internal/npz"
)

// BatchOf says how many rows a model computes at once: the first extent of all its inputs and outputs, AsMany where
// that is open in all of them. They may be open nowhere else, so that all requests go with each other. The error says
// why requests for it cannot be gathered.
func BatchOf(inputs, outputs []runmodel.TensorInfo) (rows int64, err error) {
	if len(inputs) == 0 {
		return 0, errors.New("the model has no inputs")
	}
	for i, info := range slices.Concat(inputs, outputs) {
		what := "input"
		if i >= len(inputs) {
			what = "output"
		}
		switch {
		case len(info.Shape) == 0:
			return 0, fmt.Errorf("the %s %s has no rows", what, info)
		case slices.Contains(info.Shape[1:], -1):
			return 0, fmt.Errorf("the %s %s has an open dimension beside the first; requests are gathered for models "+
				"that were compiled for a batch (--input-shape), or whose first dimensions only are open (--dynamic)",
				what, info)
		case i == 0:
			rows = info.Shape[0]
		case (rows == AsMany) != (info.Shape[0] == AsMany):
			return 0, fmt.Errorf("the first dimension is open in one of the input %s and the %s %s only",
				inputs[0], what, info)
		case rows != info.Shape[0]:
			return 0, fmt.Errorf("the %s %s has %d rows, the input %q %d", what, info, info.Shape[0], inputs[0].Name, rows)
		}
	}
	if rows != AsMany && rows < 2 {
		return 0, errors.New("the model was compiled for one row; compile it for a batch of several (--input-shape)")
	}
	return rows, nil
}

// MostRows is how many rows a model may be given whose first dimension is open, by its inputs' domains; 0 where nothing
// bounds them. The error says why requests cannot be gathered: one row must be allowed, and as many as are tried.
func MostRows(inputs []runmodel.TensorInfo) (most int64, err error) {
	for _, info := range inputs {
		if len(info.Domain) == 0 || info.Domain[0] == nil {
			continue
		}
		least, last := info.Domain[0][0], info.Domain[0][1]
		if least > 1 || last < rowsTried {
			return 0, fmt.Errorf("the input %s was compiled for %d to %d rows; requests are gathered for models that take from "+
				"1 to %d or more (--dynamic)", info, least, last, rowsTried)
		}
		if most == 0 || last < most {
			most = last
		}
	}
	return most, nil
}

// rowsDiffer is by how much a row may differ among other rows, as a share of the output's greatest value: kernels may add
// in another order.
const rowsDiffer = 1e-5

// rowsTried is how many rows a model that takes as many as it is given is tried with.
const rowsTried = 4

// CheckRows runs a model three times on random rows, and says which output of a row hangs on the other rows of the batch,
// or on its place; one that takes AsMany is run on fewer rows, too. It is a trial and no proof: what mixes rows only
// for some data passes. inputs and rows are the model's (BatchOf).
func CheckRows(ctx context.Context, executor Executor, inputs []runmodel.TensorInfo, rows int64) error {
	open := rows == AsMany
	if open {
		rows = rowsTried
	}
	inputs = withRows(inputs, rows)
	var given [2][]npz.Array
	var made [2][]npz.Array
	var err error
	for i := range given {
		if given[i], err = runmodel.RandomInputs(inputs, uint64(i+1)); err != nil {
			return fmt.Errorf("whether the model mixes rows cannot be tried: %w", err)
		}
		if made[i], err = executor.Infer(ctx, given[i]); err != nil {
			return err
		}
	}
	// Even rows are the first batch's, each in the place of the one before it; odd ones are the second batch's.
	mixed := make([]npz.Array, len(inputs))
	for k := range mixed {
		mixed[k] = given[1][k]
		mixed[k].Data = nil
		for row := range rows {
			from, at := source(row, rows)
			mixed[k].Data = append(mixed[k].Data, rowOf(&given[from][k], at, rows)...)
		}
	}
	seen, err := executor.Infer(ctx, mixed)
	if err != nil {
		return err
	}
	informative := false
	for k := range seen {
		for _, one := range [][]npz.Array{made[0], made[1], seen} {
			if len(one) != len(seen) || len(one[k].Shape) == 0 || one[k].Shape[0] != rows {
				return fmt.Errorf("an output of the model has not one row for each of its inputs")
			}
		}
		informative = informative || !bytes.Equal(made[0][k].Data, made[1][k].Data)
		greatest := max(greatestOf(&made[0][k]), greatestOf(&made[1][k]))
		for row := range rows {
			from, at := source(row, rows)
			if !same(seen[k].DType, rowOf(&seen[k], row, rows), rowOf(&made[from][k], at, rows), rowsDiffer*greatest) {
				return fmt.Errorf("the output %q of a row is another one among other rows: the model mixes rows", seen[k].Name)
			}
		}
	}
	if !informative {
		return errors.New("whether the model mixes rows cannot be tried: random inputs all give the same outputs")
	}
	if open {
		return checkFewer(ctx, executor, mixed, seen, rows)
	}
	return nil
}

// checkFewer holds what the first of some rows give by themselves against what they gave among all.
func checkFewer(ctx context.Context, executor Executor, inputs, outputs []npz.Array, rows int64) error {
	for fewer := int64(1); fewer < rows; fewer++ {
		made, err := executor.Infer(ctx, rowsOf(inputs, 0, fewer, rows))
		if err != nil {
			return fmt.Errorf("with %d rows in place of %d: %w", fewer, rows, err)
		}
		for k, want := range rowsOf(outputs, 0, fewer, rows) {
			if len(made) != len(outputs) || len(made[k].Shape) == 0 || made[k].Shape[0] != fewer {
				return errors.New("an output of the model has not one row for each of its inputs")
			}
			if !same(want.DType, made[k].Data, want.Data, rowsDiffer*greatestOf(&outputs[k])) {
				return fmt.Errorf("the output %q of a row is another one among %d rows than among %d", want.Name, fewer,
					rows)
			}
		}
	}
	return nil
}

// withRows are inputs of so many rows.
func withRows(inputs []runmodel.TensorInfo, rows int64) []runmodel.TensorInfo {
	inputs = slices.Clone(inputs)
	for i := range inputs {
		inputs[i].Shape = append([]int64{rows}, inputs[i].Shape[1:]...)
		inputs[i].Tried = nil
	}
	return inputs
}

// source says which batch and which of its rows a row of the mixed one is.
func source(row, rows int64) (batch int, at int64) {
	if row%2 == 0 {
		return 0, (row + 1) % rows
	}
	return 1, row
}

// rowOf are the bytes of one row.
func rowOf(a *npz.Array, row, rows int64) []byte {
	size := int64(len(a.Data)) / rows
	return a.Data[row*size : (row+1)*size]
}

// greatestOf is the greatest absolute element that is a number, of an array of floats; 0 of another one.
func greatestOf(a *npz.Array) (greatest float64) {
	floats(a.DType, a.Data, func(v float64) {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			greatest = max(greatest, math.Abs(v))
		}
	})
	return greatest
}

// same says whether elements agree: floats within a distance, all else to the bit.
func same(dtype string, a, b []byte, within float64) bool {
	var left []float64
	if !floats(dtype, a, func(v float64) { left = append(left, v) }) {
		return bytes.Equal(a, b)
	}
	at, agree := 0, len(a) == len(b)
	floats(dtype, b, func(v float64) {
		if at < len(left) && !(math.Abs(left[at]-v) <= within || left[at] == v || left[at] != left[at] && v != v) {
			agree = false
		}
		at++
	})
	return agree
}

// floats calls f with each element; false for what is neither float32 nor float64.
func floats(dtype string, data []byte, f func(v float64)) bool {
	switch dtype {
	case "float32":
		for part := range slices.Chunk(data, 4) {
			f(float64(math.Float32frombits(binary.LittleEndian.Uint32(part))))
		}
	case "float64":
		for part := range slices.Chunk(data, 8) {
			f(math.Float64frombits(binary.LittleEndian.Uint64(part)))
		}
	default:
		return false
	}
	return true
}
