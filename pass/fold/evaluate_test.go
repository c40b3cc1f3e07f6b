// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/collage-tvm/collage/relay"
)

var dtypeNames = map[string]string{"float32": "float32", "float64": "float64", "int8": "int8", "int16": "int16",
	"int32": "int32", "int64": "int64", "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64"}

// tensor makes a tensor of values; no shape means one dimension.
func tensor[T number](values []T, shape ...int64) value {
	if shape == nil {
		shape = []int64{int64(len(values))}
	}
	t, err := newTensor(dtypeNames[fmt.Sprintf("%T", values)[2:]], shape)
	if err != nil || int(t.len()) != len(values) {
		panic(fmt.Sprint("values and shape do not fit: ", err))
	}
	copy(items[T](t), values)
	return value{tensor: t}
}

// scalar makes a tensor without dimensions.
func scalar[T number](x T) value { return tensor([]T{x}, []int64{}...) }

func truthsOf(values ...uint8) value {
	v := tensor(values)
	v.tensor.DType = "bool"
	return v
}

func tuple(fields ...value) value { return value{fields: fields} }

type attributes map[string]any

// call evaluates an operator, which must be known.
func call(t *testing.T, op string, attrs attributes, args ...value) *Tensor {
	t.Helper()
	v, err := evaluate(op, args, relay.NewAttrs("", attrs))
	require.NoError(t, err, op)
	require.NotNil(t, v.tensor, op)
	n, _ := elements(v.tensor.Shape)
	require.Equal(t, n*itemSize(v.tensor.DType), int64(len(v.tensor.data)), op)
	return v.tensor
}

func refused(t *testing.T, want error, op string, attrs attributes, args ...value) {
	t.Helper()
	_, err := evaluate(op, args, relay.NewAttrs("", attrs))
	assert.ErrorIs(t, err, want, op)
}

func TestIntegersWrapAroundAndDivideTowardsZero(t *testing.T) {
	low, high := int32(math.MinInt32), int32(math.MaxInt32)
	a, b := tensor([]int32{7, -7, 7, -7, high, low}), tensor([]int32{2, 2, -2, -2, 1, -1})
	for op, want := range map[string][]int32{
		"add":          {9, -5, 5, -9, low, high},
		"multiply":     {14, -14, -14, 14, high, low},
		"divide":       {3, -3, -3, 3, high, low},
		"floor_divide": {3, -4, -4, 3, high, low},
		"mod":          {1, -1, 1, -1, 0, 0},
		"floor_mod":    {1, 1, -1, -1, 0, 0},
	} {
		assert.Equal(t, want, items[int32](call(t, op, nil, a, b)), op)
	}
	assert.Equal(t, []uint8{255, 4}, items[uint8](
		call(t, "subtract", nil, tensor([]uint8{1, 5}), tensor([]uint8{2, 1}))))
}

func TestDivisionOfIntegersByZeroIsAnError(t *testing.T) {
	for _, op := range []string{"divide", "floor_divide", "mod", "floor_mod"} {
		refused(t, ErrDivision, op, nil, tensor([]int64{1, 2}), tensor([]int64{1, 0}))
		empty := call(t, op, nil, tensor([]int64{}, 0), scalar(int64(0)))
		assert.Equal(t, []int64{0}, empty.Shape, "nothing is divided")
	}
	quotient := items[float32](call(t, "divide", nil, tensor([]float32{1, -1, 0}), scalar(float32(0))))
	assert.True(t, math.IsInf(float64(quotient[0]), 1) && math.IsInf(float64(quotient[1]), -1) &&
		quotient[2] != quotient[2])
}

func TestNotANumberAndSignsOfZero(t *testing.T) {
	nan, zero := float32(math.NaN()), float32(math.Copysign(0, -1))
	a, b := tensor([]float32{nan, 1, zero, 0}), tensor([]float32{1, nan, 0, zero})
	bits := func(t *Tensor) []uint32 { return items[uint32](t) }
	one, minus := math.Float32bits(1), math.Float32bits(zero)
	number := bits(b.tensor)[1]
	assert.Equal(t, []uint32{one, number, 0, minus}, bits(call(t, "maximum", nil, a, b)),
		"the second where the first is not greater")
	assert.Equal(t, []uint32{one, number, 0, minus}, bits(call(t, "minimum", nil, a, b)))
	assert.Equal(t, []uint8{0, 0, 1, 1}, items[uint8](call(t, "equal", nil, a, b)))
	assert.Equal(t, []uint8{0, 0, 0, 0}, items[uint8](call(t, "not_equal", nil, a, b)))
	assert.Equal(t, []uint32{0, 0}, bits(call(t, "negative", nil, tensor([]float32{0, zero}))))
	assert.Equal(t, []uint8{0, 1, 0, 0}, items[uint8](call(t, "cast", attributes{"dtype": "bool"}, a)))
	assert.Equal(t, []float32{6, 1}, items[float32](call(t, "clip", attributes{"a_min": 0.0, "a_max": 6.0},
		tensor([]float32{nan, 1}))))
}

func TestCastsThatTheProcessorDecidesAreLeft(t *testing.T) {
	for _, x := range []float32{float32(math.NaN()), float32(math.Inf(1)), 2147483648, -2147483904} {
		refused(t, errLeft, "cast", attributes{"dtype": "int32"}, scalar(x))
	}
	assert.Equal(t, []int32{-2147483648, -1, 1}, items[int32](call(t, "cast", attributes{"dtype": "int32"},
		tensor([]float32{-2147483648, -1.9, 1.9}))))
	assert.Equal(t, []uint8{255, 44}, items[uint8](
		call(t, "cast", attributes{"dtype": "uint8"}, tensor([]int64{-1, 300}))))
	refused(t, errLeft, "cast", attributes{"dtype": "uint8"}, scalar(float32(-1)))
	refused(t, errLeft, "cast", attributes{"dtype": "float16"}, scalar(float32(1)))
	refused(t, errLeft, "left_shift", nil, scalar(int32(1)), scalar(int32(32)))
	refused(t, errLeft, "exp", nil, scalar(float64(1)))
	refused(t, errLeft, "nn.softmax", attributes{"axis": -1}, tensor([]float32{1, 2}))
}

func TestBroadcasting(t *testing.T) {
	column, row := tensor([]int32{10, 20}, 2, 1), tensor([]int32{1, 2, 3}, 3)
	sum := call(t, "add", nil, column, row)
	assert.Equal(t, []int64{2, 3}, sum.Shape)
	assert.Equal(t, []int32{11, 12, 13, 21, 22, 23}, items[int32](sum))
	assert.Equal(t, []int64{}, call(t, "add", nil, scalar(int32(1)), scalar(int32(2))).Shape)
	assert.Equal(t, []int64{2, 0}, call(t, "add", nil, column, tensor([]int32{}, 1, 0)).Shape)
	refused(t, errLeft, "add", nil, column, tensor([]int32{1, 2, 3}, 3, 1))
	refused(t, errLeft, "add", nil, column, tensor([]int64{1}))
	chosen := call(t, "where", nil, truthsOf(1, 0, 1), column, row)
	assert.Equal(t, []int32{10, 2, 10, 20, 2, 20}, items[int32](chosen))
	wide := call(t, "broadcast_to", attributes{"shape": []int{2, 2, 3}}, row)
	assert.Equal(t, slices.Repeat([]int32{1, 2, 3}, 4), items[int32](wide))
}

func TestShapes(t *testing.T) {
	data := tensor([]int32{0, 1, 2, 3, 4, 5}, 2, 3)
	for _, c := range []struct {
		op    string
		attrs attributes
		shape []int64
		want  []int32
	}{
		{"reshape", attributes{"newshape": []int{0, -1, 1}, "allowzero": 0}, []int64{2, 3, 1},
			[]int32{0, 1, 2, 3, 4, 5}},
		{"reshape", attributes{"newshape": []int{-3}, "allowzero": 0}, []int64{6}, []int32{0, 1, 2, 3, 4, 5}},
		{"reshape", attributes{"newshape": []int{-2, 1}, "allowzero": 0}, []int64{2, 3, 1}, []int32{0, 1, 2, 3, 4, 5}},
		{"expand_dims", attributes{"axis": -1, "num_newaxis": 2}, []int64{2, 3, 1, 1}, []int32{0, 1, 2, 3, 4, 5}},
		{"transpose", attributes{"axes": nil}, []int64{3, 2}, []int32{0, 3, 1, 4, 2, 5}},
		{"reverse", attributes{"axis": 1}, []int64{2, 3}, []int32{2, 1, 0, 5, 4, 3}},
		{"repeat", attributes{"repeats": 2, "axis": 0}, []int64{4, 3}, []int32{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}},
		{"tile", attributes{"reps": []int{2, 1}}, []int64{4, 3}, []int32{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}},
		{"tile", attributes{"reps": []int{2}}, []int64{2, 6}, []int32{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}},
		{"sum", attributes{"axis": []int{0}, "keepdims": 0, "exclude": 0}, []int64{3}, []int32{3, 5, 7}},
		{"max", attributes{"axis": []int{0}, "keepdims": 1, "exclude": 1}, []int64{2, 1}, []int32{2, 5}},
		{"prod", attributes{"axis": nil, "keepdims": 0, "exclude": 0}, []int64{}, []int32{0}},
		{"strided_slice", slice([]int{0, -2}, []int{2, 100}, []int{1}), []int64{2, 2}, []int32{1, 2, 4, 5}},
		{"strided_slice", slice([]int{1, 2}, []int{-3, -4}, []int{-1, -2}), []int64{2, 2}, []int32{5, 3, 2, 0}},
		{"strided_slice", attributes{"begin": []int{1}, "end": []int{-1}, "strides": []int{1}, "slice_mode": "size",
			"axes": []int{1}}, []int64{2, 2}, []int32{1, 2, 4, 5}},
	} {
		out := call(t, c.op, c.attrs, data)
		assert.Equal(t, c.shape, out.Shape, "%s %v", c.op, c.attrs)
		assert.Equal(t, c.want, items[int32](out), "%s %v", c.op, c.attrs)
	}
	assert.Equal(t, []int64{3}, call(t, "squeeze", attributes{"axis": []int{0, -1}},
		tensor([]int32{1, 2, 3}, 1, 3, 1)).Shape)
	refused(t, errLeft, "squeeze", attributes{"axis": []int{0}}, data)
	refused(t, errLeft, "reshape", attributes{"newshape": []int{4, -1}, "allowzero": 0}, data)
	refused(t, errLeft, "strided_slice", slice([]int{2}, []int{1}, []int{1}), data)
}

func slice(begin, end, strides []int) attributes {
	return attributes{"begin": begin, "end": end, "strides": strides, "slice_mode": "end", "axes": nil}
}

func TestSeveralTensors(t *testing.T) {
	a, b := tensor([]int64{1, 2}, 2, 1), tensor([]int64{3, 4, 5, 6}, 2, 2)
	joined := call(t, "concatenate", attributes{"axis": -1}, tuple(a, b))
	assert.Equal(t, []int64{1, 3, 4, 2, 5, 6}, items[int64](joined))
	assert.Equal(t, []int64{2, 2, 1}, call(t, "stack", attributes{"axis": 0}, tuple(a, a)).Shape)
	refused(t, errLeft, "stack", attributes{"axis": 0}, tuple(a, b))
	refused(t, errLeft, "concatenate", attributes{"axis": 0}, tuple(a, b))

	parts, err := evaluate("split", []value{b},
		relay.NewAttrs("", attributes{"indices_or_sections": []int{1}, "axis": 1}))
	require.NoError(t, err)
	require.Len(t, parts.fields, 2)
	assert.Equal(t, []int64{4, 6}, items[int64](parts.fields[1].tensor))
	refused(t, errLeft, "split", attributes{"indices_or_sections": 3, "axis": 1}, b)

	at := tensor([]int64{1, -1, 5}, 3)
	attrs := func(mode string) attributes { return attributes{"axis": 0, "mode": mode, "batch_dims": 0} }
	assert.Equal(t, []int64{5, 6, 3, 4, 5, 6}, items[int64](call(t, "take", attrs("clip"), b, at)))
	assert.Equal(t, []int64{5, 6, 5, 6, 5, 6}, items[int64](call(t, "take", attrs("wrap"), b, at)))
	refused(t, errLeft, "take", attrs("fast"), b, at)
	whole := call(t, "take", attributes{"axis": nil, "mode": "clip", "batch_dims": 0}, b, scalar(int32(3)))
	assert.Equal(t, []int64{6}, items[int64](whole))
	assert.Empty(t, whole.Shape)
	assert.Equal(t, []int64{4, 5}, items[int64](
		call(t, "gather", attributes{"axis": 1}, b, tensor([]int64{1, 0}, 2, 1))))
	refused(t, errLeft, "gather", attributes{"axis": 1}, b, tensor([]int64{-1, 0}, 2, 1))

	steps := call(t, "arange", attributes{"dtype": "int64"}, scalar(int64(5)), scalar(int64(-2)), scalar(int64(-3)))
	assert.Equal(t, []int64{5, 2, -1}, items[int64](steps))
	refused(t, errLeft, "arange", attributes{"dtype": "int64"}, scalar(int64(0)), scalar(int64(3)), scalar(int64(0)))
}

func TestLayouts(t *testing.T) {
	data := tensor([]int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 4, 3)
	layouts := func(from, to string) attributes { return attributes{"src_layout": from, "dst_layout": to} }
	blocks := call(t, "layout_transform", layouts("NC", "CN2n"), data)
	assert.Equal(t, []int64{3, 2, 2}, blocks.Shape)
	assert.Equal(t, []int32{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}, items[int32](blocks))
	back := call(t, "layout_transform", layouts("CN2n", "NC"), value{tensor: blocks})
	assert.Equal(t, data.tensor.Shape, back.Shape)
	assert.Equal(t, items[int32](data.tensor), items[int32](back))
	moved := call(t, "layout_transform", layouts("CN2n", "NC2n"), value{tensor: blocks})
	assert.Equal(t, []int32{0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11}, items[int32](moved))
	for _, other := range []string{"NC2c", "N", "NCH", "2nNC", "N2nC2n", "N16C", "n"} {
		refused(t, errLeft, "layout_transform", layouts("NC", other), data)
	}
	refused(t, errLeft, "layout_transform", layouts("CN2n", "CN4n"), value{tensor: blocks})
}

func TestGiganticResultsAreLeft(t *testing.T) {
	refused(t, errLeft, "broadcast_to", attributes{"shape": []int{1 << 20, 1 << 20}}, scalar(float32(1)))
	refused(t, errLeft, "full", attributes{"shape": []int{1 << 40, 1 << 40}, "dtype": "int8"}, scalar(int8(1)))
}

// What float64 gives is within one unit in the last place of float32, whatever the platform's library does.
func TestTranscendentalFunctionsAreRoundedOnce(t *testing.T) {
	for op, f := range map[string]func(float64) float64{"exp": math.Exp, "log": math.Log, "erf": math.Erf} {
		for x := float32(0.001); x < 80; x *= 1.01 {
			got := items[float32](call(t, op, nil, scalar(x)))[0]
			exact := f(float64(x))
			ulp := float64(math.Nextafter32(got, float32(math.Inf(1))) - got)
			require.LessOrEqual(t, math.Abs(float64(got)-exact), 0.51*ulp, "%s(%v)", op, x)
		}
	}
}

func TestDataIsAligned(t *testing.T) {
	for range 100 {
		v := tensor([]uint8{1, 2, 3})
		assert.Zero(t, uintptr(unsafe.Pointer(&v.tensor.data[0]))%8)
	}
}
