// SPDX-License-Identifier: Apache-2.0

package rounding

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reach is what the bytes of steps stand for.
func reach(s Steps) (low, high float64) {
	return -float64(s.Zero) * s.Scale, float64(255-s.Zero) * s.Scale
}

// drawn are normal numbers of which some are outliers, that many times as far.
func drawn(r *rand.Rand, count int, outliers, away float64) []float64 {
	numbers := make([]float64, count)
	for i := range numbers {
		if numbers[i] = r.NormFloat64(); r.Float64() < outliers {
			numbers[i] *= away
		}
	}
	return numbers
}

func TestMethodsThatThereAre(t *testing.T) {
	t.Parallel()
	for _, m := range []Method{MeanSquare, MinMax, Percentile, Entropy, "percentile:100", "percentile:50.5"} {
		require.NoError(t, m.Validate(), m)
	}
	for m, says := range map[Method]string{
		"": "is \"\"; it is mse", "max": "it is mse, min-max, percentile, entropy", "percentile:50": "more than 50",
		"percentile:100.5": "at most 100", "percentile:-1": "more than 50", "percentile:NaN": "more than 50",
		"percentile:": "more than 50", "entropy:3": "only percentile has a number", "min-max:1": "only percentile",
	} {
		require.ErrorContains(t, m.Validate(), says, m)
	}
}

// A percentile leaves out that share of numbers of which it is known where they are, as many at each end.
func TestAPercentileLeavesOutItsShare(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	numbers := drawn(r, 100000, 0, 0)
	s := seen(numbers)
	slices.Sort(numbers)
	for m, share := range map[Method]float64{"percentile:99": 0.005, "percentile:80": 0.1, "percentile:99.9": 0.0005} {
		low, high := reach(s.StepsBy(m))
		at := int(share * float64(len(numbers)))
		width := (s.High-s.Low)/4096 + s.StepsBy(m).Scale
		assert.InDelta(t, numbers[at], low, width, m)
		assert.InDelta(t, numbers[len(numbers)-1-at], high, width, m)
	}
	assert.Equal(t, s.StepsBy("percentile:99.99"), s.StepsBy(Percentile))
	assert.Equal(t, s.StepsBy(MinMax), s.StepsBy("percentile:100"))
	one := &Seen{Low: 0, High: 3, Counts: []int64{0, 0, 7}}
	assert.Equal(t, one.StepsBy(MinMax), one.StepsBy("percentile:60"))
	assert.Equal(t, Reaching(0, 0), (&Seen{Counts: make([]int64, 9)}).StepsBy("percentile:60"), "all are 0")
}

// divergent is Migacz's pseudo code as it stands, for parts that lie around 0 or on one side of it: the reach from
// first to last (left out) with outliers in its ends is P, what bytes tell apart is Q.
func divergent(counts []int64, first, last int) float64 {
	p := make([]float64, last-first)
	for i, c := range counts {
		p[min(max(i, first), last-1)-first] += float64(c)
	}
	inside := counts[first:last]
	q := make([]float64, len(inside))
	for level := range 256 {
		var of []int
		sum := 0.0
		for i, c := range inside {
			if i*256/len(inside) == level && c > 0 {
				of = append(of, i)
				sum += float64(c)
			}
		}
		for _, i := range of {
			q[i] = sum / float64(len(of))
		}
	}
	total := func(x []float64) (sum float64) {
		for _, v := range x {
			sum += v
		}
		return sum
	}
	of, by, divergence := total(p), total(q), 0.0
	for i := range p {
		if p[i] > 0 {
			divergence += p[i] / of * math.Log(p[i]/of/(q[i]/by))
		}
	}
	return divergence
}

// The entropy of a reach is the published one, and what is chosen diverges the least of all reaches.
func TestEntropyIsThatOfThePublishedAlgorithm(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for name, draw := range map[string]func() float64{
		"normal":    func() float64 { return r.NormFloat64() },
		"rectified": func() float64 { return max(0, r.NormFloat64()) },
		"laplace":   func() float64 { return r.ExpFloat64() * float64(1-2*r.IntN(2)) },
		"stragglers": func() float64 {
			return r.NormFloat64() * map[bool]float64{true: 8, false: 1}[r.IntN(500) == 0]
		},
		"below": func() float64 { return -r.ExpFloat64() },
		"far": func() float64 {
			return r.NormFloat64() * map[bool]float64{true: 15, false: 1}[r.IntN(2000) == 0]
		},
	} {
		parts := 1024
		if name == "far" {
			parts = 4096 // so that the least is much shorter than the whole
		}
		s := &Seen{Counts: make([]int64, parts)}
		numbers := make([]float64, 50000)
		for i := range numbers {
			numbers[i] = draw()
			s.Low, s.High = min(s.Low, numbers[i]), max(s.High, numbers[i])
		}
		for _, x := range numbers {
			if x != 0 {
				s.Counts[min(parts-1, int((x-s.Low)/(s.High-s.Low)*float64(parts)))]++
			}
		}
		for range 20 {
			first := r.IntN(parts / 3)
			last := parts - r.IntN(parts/3)
			want, got := divergent(s.Counts, first, last), s.divergence(first, last)
			if math.IsInf(want, 1) {
				require.True(t, math.IsInf(got, 1))
			} else {
				require.InDelta(t, want, got, 1e-9, name)
			}
		}
		zero := -s.Low / (s.High - s.Low) * float64(parts)
		least := math.Inf(1)
		for i := range 256 {
			reach := max(zero, float64(parts)-zero) * (1 - float64(i)/256)
			first, last := max(0, int(math.Floor(zero-reach))), min(parts, int(math.Ceil(zero+reach)))
			if last-first < 256 {
				break
			}
			least = min(least, divergent(s.Counts, first, last))
		}
		low, high := s.leastDivergent()
		part := func(x float64) int { return int(math.Round((x - s.Low) / (s.High - s.Low) * float64(parts))) }
		got := divergent(s.Counts, part(low), part(high))
		assert.InDelta(t, least, got, 1e-9, name)
		assert.LessOrEqual(t, got, divergent(s.Counts, 0, parts)+1e-9, name)
	}
}

// Of normal numbers one in a hundred thousand of which is a hundred times as far, the answer is known: it is off the
// least where that one is cut off. Of those whose outliers are most of their squares, it is where they are not.
func TestWhatMethodsMakeOfOutliers(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	rare := drawn(r, 100000, 0, 0)
	rare[7] = 50
	s := seen(rare)
	for _, m := range []Method{"percentile:99.99", "percentile:99", Entropy} {
		_, high := reach(s.StepsBy(m))
		assert.Less(t, high, 30.0, m)
		assert.Less(t, median(rare, s.StepsBy(m)), 0.7*median(rare, s.StepsBy(MinMax)), m)
	}
	_, high := reach(s.StepsBy(MinMax))
	assert.InDelta(t, 50, high, 0.2)

	heavy := drawn(r, 100000, 0.02, 30)
	s = seen(heavy)
	whole := off(heavy, s.StepsBy(MinMax))
	assert.LessOrEqual(t, off(heavy, s.StepsBy(MeanSquare)), whole)
	assert.Greater(t, off(heavy, s.StepsBy("percentile:98")), 5*whole, "what is cut off is most of them")
	for name, numbers := range map[string][]float64{"rare": rare, "heavy": heavy} {
		s := seen(numbers)
		for _, m := range Methods() {
			assert.LessOrEqual(t, off(numbers, s.StepsBy(MeanSquare)), 1.02*off(numbers, s.StepsBy(m)), "%s: %s", name, m)
		}
	}
}

// median is by how much half of the numbers are off at most.
func median(numbers []float64, s Steps) float64 {
	var offs []float64
	for _, x := range numbers {
		offs = append(offs, off([]float64{x}, s))
	}
	slices.Sort(offs)
	return offs[len(offs)/2]
}
