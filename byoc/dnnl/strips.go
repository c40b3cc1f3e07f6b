// SPDX-License-Identifier: Apache-2.0

package dnnl

import (
	"slices"

	"github.com/collage-tvm/collage/byoc/native"
	"github.com/collage-tvm/collage/byoc/region"
)

// role is how an operation can take part in a group that is run strip by strip.
type role int

const (
	// barrier: not at all. It reads and writes whole tensors.
	barrier role = iota
	// pointwise: each pixel of the result depends on that pixel of the arguments alone.
	pointwise
	// window: each pixel of the result depends on pixels around it, so the argument must be finished before, or ahead.
	window
	// ahead: pointwise, and read by windows alone: it is of their group, which computes what they see (native.
	// ExpansionKernel).
	ahead
)

// image is what all results of a group have in common: batch, height and width.
type image [3]int64

// strips makes groups of the operations whose kernel is strips (byoc/runtime/dnnl_strips.cc), and brings the operations
// into an order in which those of a group follow one another.
//
// Operations are sorted into levels. What reads pixels around its own (window) stands a level above what made its
// argument; what reads one pixel only may share its argument's level. Factors for whole channels are of another image
// and finished before. Operations of one level and one image size then depend on each other pixel by pixel, and on
// nothing that depends on them: they form a group, be it of one. What is done ahead joins the group of the windows that
// read it; what it reads itself is finished before, as if it were a window.
func (l *lowering) strips() {
	roles := make([]role, len(l.ops))
	producer := map[region.ValueID]int{}
	found := false
	for i, o := range l.ops {
		if native.OnStrips(o.kernel) {
			if roles[i] = l.role(o); roles[i] == barrier {
				o.kernel = ""
			}
		}
		for _, v := range append([]region.ValueID{o.out}, o.more...) {
			producer[v] = i
		}
		found = found || roles[i] != barrier
	}
	if found {
		l.gather(l.together(roles, producer), producer)
	}
}

// together gives each operation the number of its group; -1 for barriers. What cannot be done ahead, since somebody
// else reads it, or windows of different groups do, is pointwise like any other.
func (l *lowering) together(roles []role, producer map[region.ValueID]int) []int {
	readers := map[region.ValueID][]int{}
	for i, o := range l.ops {
		for _, v := range slices.Concat(o.in, o.operands()) {
			readers[v] = append(readers[v], i)
		}
	}
	for i, o := range l.ops {
		if o.kernel == native.ExpansionKernel && roles[i] == pointwise && l.onlyWindows(o, readers[o.out], roles) {
			roles[i] = ahead
		}
	}
	for {
		groups, same := l.levels(roles, producer), true
		for i, o := range l.ops {
			if roles[i] != ahead {
				continue
			}
			groups[i] = groups[readers[o.out][0]]
			for _, r := range readers[o.out] {
				if groups[r] != groups[i] {
					roles[i], same = pointwise, false
				}
			}
		}
		if same {
			for i, o := range l.ops {
				if o.kernel == native.ExpansionKernel && roles[i] != ahead {
					o.kernel = native.StripsKernel
				}
			}
			return groups
		}
	}
}

// onlyWindows says that what an operation makes is read by windows that go down the image in the same steps, and by
// nobody else.
func (l *lowering) onlyWindows(o *operation, readers []int, roles []role) bool {
	if len(readers) == 0 || slices.Contains(l.p.Outputs, o.out) {
		return false
	}
	for _, r := range readers {
		reader := l.ops[r]
		if roles[r] != window || reader.in[0] != o.out || slices.Contains(reader.in[1:], o.out) ||
			slices.Contains(reader.operands(), o.out) || reader.strides[0] != l.ops[readers[0]].strides[0] {
			return false
		}
	}
	return true
}

// role says what an operation for strips can be, as it is by now (byoc/runtime/dnnl_strips.cc: StripBuilder::FitsOp).
func (l *lowering) role(o *operation) role {
	if !l.isImage(o.out) || o.perm != nil || !l.stripPosts(o) {
		return barrier
	}
	switch o.kind {
	case "conv":
		if !l.isConstant(o.in[1]) || o.bias && !l.isConstant(l.moved(o.in[2])) {
			break
		}
		w := o.weightDims
		if len(w) == 4 && w[2] == 1 && w[3] == 1 && all(o.strides, 1) && all(o.padding, 0) {
			return pointwise
		}
		if len(w) == 5 && w[1] == 1 && w[2] == 1 {
			return window
		}
	case "pool":
		return window
	case "binary":
		same := l.sameShape(o.in[0], o.out) && l.sameShape(o.in[1], o.out)
		if same && (o.algorithm == "add" || o.algorithm == "multiply") || l.factors(o) != noValue {
			return pointwise
		}
	case "eltwise":
		if isStripFunction(o.algorithm) {
			return pointwise
		}
	case "concat":
		if slices.Equal(o.axes, []int64{1}) {
			return pointwise
		}
	}
	return barrier
}

// moved follows a value back through what only moves its elements.
func (l *lowering) moved(v region.ValueID) region.ValueID {
	for o := l.maker(v); o != nil && len(o.post) == 0 &&
		(o.kind == "reshape" || o.kind == "transpose"); o = l.maker(v) {
		v = o.in[0]
	}
	return v
}

// factors is the argument of a product that is one number for each channel, of all images or of each of them; noValue
// for none.
func (l *lowering) factors(o *operation) region.ValueID {
	if o.kind != "binary" || o.algorithm != "multiply" {
		return noValue
	}
	out := l.types[o.out].Shape
	for i, v := range o.in {
		s := l.types[v].Shape
		if l.sameShape(o.in[1-i], o.out) && !l.sameShape(v, o.out) && len(s) == 4 && (s[0] == 1 || s[0] == out[0]) &&
			s[1] == out[1] && s[2] == 1 && s[3] == 1 {
			return v
		}
	}
	return noValue
}

// stripPosts says that what is hung on an operation are functions that strips do on the way out, and at most one sum
// with a tensor of its shape.
func (l *lowering) stripPosts(o *operation) bool {
	sums := 0
	if o.kind == "binary" {
		sums = 1
	}
	for _, p := range o.post {
		switch {
		case p.operand == noValue && isStripFunction(p.function):
		case p.function == "add" && p.operand != noValue && l.sameShape(p.operand, o.out) && sums == 0:
			sums++
		default:
			return false
		}
	}
	return true
}

// isStripFunction says that strips have a function of one number (byoc/runtime/dnnl_posts.cc).
func isStripFunction(function string) bool {
	return slices.Contains([]string{"relu", "clip", "linear", "sigmoid", "swish", "hardswish", "gelu", "gelu_tanh",
		native.GridKernel}, function)
}

func all(list []int64, value int64) bool {
	return !slices.ContainsFunc(list, func(v int64) bool { return v != value })
}

func (l *lowering) isImage(v region.ValueID) bool {
	shape := l.types[v].Shape
	return l.types[v].DType == "float32" && len(shape) == 4
}

func (l *lowering) sameShape(a, b region.ValueID) bool {
	return slices.Equal(l.types[a].Shape, l.types[b].Shape)
}

// levels gives each operation the number of its group; -1 for barriers and what is done ahead.
func (l *lowering) levels(roles []role, producer map[region.ValueID]int) []int {
	// level is that of the operation; finished the first level that finds its result finished.
	level, finished := make([]int, len(l.ops)), make([]int, len(l.ops))
	type key struct {
		level int
		image image
	}
	numbers := map[key]int{}
	group := make([]int, len(l.ops))
	for i, o := range l.ops {
		reads := o.data()
		if roles[i] == barrier {
			reads = o.in
			for _, p := range o.post {
				reads = append(slices.Clone(reads), p.operand)
			}
		}
		for at, v := range reads {
			p, ok := producer[v]
			switch {
			case !ok: // an input or a constant
			case roles[i] == barrier || roles[i] == ahead || roles[p] == barrier || v == l.factors(o) ||
				roles[i] == window && at == 0 && roles[p] != ahead:
				level[i] = max(level[i], finished[p])
			default:
				level[i] = max(level[i], level[p])
			}
		}
		finished[i] = level[i]
		if roles[i] != barrier {
			finished[i]++
		}
	}
	l.sink(level, roles, producer)
	for i, o := range l.ops {
		group[i] = -1
		if roles[i] == barrier || roles[i] == ahead {
			continue
		}
		shape := l.types[o.out].Shape
		k := key{level[i], image{shape[0], shape[2], shape[3]}}
		if _, ok := numbers[k]; !ok {
			numbers[k] = len(numbers)
		}
		group[i] = numbers[k]
	}
	return group
}

// sink moves operations up to the level of what reads them, where that is a higher one, so that their results need not
// be stored as a whole. It must not cause something else to be stored: what they read has to be finished anyway, or to
// move with them.
func (l *lowering) sink(level []int, roles []role, producer map[region.ValueID]int) {
	readers := map[region.ValueID][]int{}
	for i, o := range l.ops {
		for _, v := range o.data() {
			readers[v] = append(readers[v], i)
		}
		if roles[i] == barrier {
			for _, v := range o.in {
				readers[v] = append(readers[v], i)
			}
		}
	}
	movable := make([]bool, len(l.ops))
	for i, o := range l.ops {
		movable[i] = roles[i] != barrier
		for at, v := range o.data() {
			p, ok := producer[v]
			if !ok || roles[i] == window && at == 0 || roles[p] == barrier || level[p] < level[i] {
				continue
			}
			movable[i] = movable[i] && movable[p] && len(readers[v]) == 1 && !slices.Contains(l.p.Outputs, v)
		}
	}
	for i := len(l.ops) - 1; i >= 0; i-- {
		o := l.ops[i]
		if !movable[i] || len(readers[o.out]) == 0 || slices.Contains(l.p.Outputs, o.out) {
			continue
		}
		to := level[readers[o.out][0]]
		for _, r := range readers[o.out] {
			reader := l.ops[r]
			if roles[r] == barrier || roles[r] == ahead || roles[r] == window && reader.in[0] == o.out ||
				!l.sameImage(reader.out, o.out) {
				to = level[i]
			}
			to = min(to, level[r])
		}
		level[i] = max(level[i], to)
	}
}

// sameImage says that two tensors have the same batch, height and width.
func (l *lowering) sameImage(a, b region.ValueID) bool {
	x, y := l.types[a].Shape, l.types[b].Shape
	return len(x) == 4 && len(y) == 4 && x[0] == y[0] && slices.Equal(x[2:], y[2:])
}

// gather brings the operations of each group together, each behind all that it reads, and notes where the groups are.
func (l *lowering) gather(groups []int, producer map[region.ValueID]int) {
	members := map[int][]int{}
	for i, g := range groups {
		if g >= 0 {
			members[g] = append(members[g], i)
		}
	}
	var order []*operation
	done := make([]bool, len(l.ops))
	var emit func(i int)
	before := func(i int) {
		o := l.ops[i]
		for _, v := range o.in {
			if p, ok := producer[v]; ok && (groups[p] < 0 || groups[p] != groups[i]) {
				emit(p)
			}
		}
		for _, post := range o.post {
			if p, ok := producer[post.operand]; ok && (groups[p] < 0 || groups[p] != groups[i]) {
				emit(p)
			}
		}
	}
	emit = func(i int) {
		if done[i] {
			return
		}
		g := groups[i]
		if g < 0 {
			done[i] = true
			before(i)
			order = append(order, l.ops[i])
			return
		}
		for _, m := range members[g] {
			done[m] = true
		}
		for _, m := range members[g] {
			before(m)
		}
		l.stripRanges = append(l.stripRanges, int64(len(order)), int64(len(members[g])))
		for _, m := range members[g] {
			order = append(order, l.ops[m])
		}
	}
	for i := range l.ops {
		emit(i)
	}
	l.ops = order
}
