// SPDX-License-Identifier: Apache-2.0

package recurrent

import (
	"container/heap"

	"github.com/collage-tvm/collage/byoc/region"
)

// Item is what is written next: an operator of the program, or a layer, which stands for several.
type Item struct {
	// Op is the operator's number; -1 for a layer.
	Op    int
	Layer *Layer
}

// Schedule gives the operators and layers of a program in an order in which they can run: that of the program, but for
// what must wait for a layer. What only layers would have read is left out.
func Schedule(p *region.Program) []Item {
	layers := Find(p)
	items := make([]Item, 0, len(p.Ops))
	if len(layers) == 0 {
		for i := range p.Ops {
			items = append(items, Item{Op: i})
		}
		return items
	}
	owner := make([]int, len(p.Ops))
	for i := range owner {
		owner[i] = -1
	}
	for k := range layers {
		for _, op := range layers[k].Ops {
			owner[op] = k
		}
	}
	// Units are numbered by their first operator.
	read := make([][]region.ValueID, len(p.Ops))
	made := make([][]region.ValueID, len(p.Ops))
	unitOf := make([]int, len(p.Ops))
	layerAt := map[int]*Layer{}
	for i := range p.Ops {
		if k := owner[i]; k >= 0 {
			unitOf[i] = layers[k].Ops[0]
			continue
		}
		unitOf[i], read[i], made[i] = i, p.Ops[i].Args, p.Ops[i].Results
	}
	for k := range layers {
		l := &layers[k]
		first := l.Ops[0]
		layerAt[first], read[first] = l, l.reads(p)
		for _, o := range l.Outputs {
			made[first] = append(made[first], o.Value)
		}
	}
	needed := neededUnits(p, read, unitOf)
	waits := make([]int, len(p.Ops))
	wakes := make([][]int, len(p.Ops))
	ready := &unitHeap{}
	for u := range p.Ops {
		if unitOf[u] != u || !needed[u] {
			continue
		}
		before := map[int]bool{}
		for _, v := range read[u] {
			if producer := p.Values[v].Producer; producer >= 0 && !before[unitOf[producer]] {
				before[unitOf[producer]] = true
				wakes[unitOf[producer]] = append(wakes[unitOf[producer]], u)
				waits[u]++
			}
		}
		if waits[u] == 0 {
			heap.Push(ready, u)
		}
	}
	for ready.Len() > 0 {
		u := heap.Pop(ready).(int)
		if l := layerAt[u]; l != nil {
			items = append(items, Item{Op: -1, Layer: l})
		} else {
			items = append(items, Item{Op: u})
		}
		for _, next := range wakes[u] {
			if waits[next]--; waits[next] == 0 {
				heap.Push(ready, next)
			}
		}
	}
	return items
}

// neededUnits says which operators and layers the region's results depend on.
func neededUnits(p *region.Program, read [][]region.ValueID, unitOf []int) []bool {
	needed := make([]bool, len(p.Ops))
	var todo []region.ValueID
	todo = append(todo, p.Outputs...)
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if producer := p.Values[v].Producer; producer >= 0 && !needed[unitOf[producer]] {
			u := unitOf[producer]
			needed[u] = true
			todo = append(todo, read[u]...)
		}
	}
	return needed
}

// unitHeap gives the smallest number first.
type unitHeap []int

func (h unitHeap) Len() int           { return len(h) }
func (h unitHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h unitHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push and Pop are container/heap's.
func (h *unitHeap) Push(x any) { *h = append(*h, x.(int)) }

// Pop takes the last element off.
func (h *unitHeap) Pop() any {
	old := *h
	v := old[len(old)-1]
	*h = old[:len(old)-1]
	return v
}
