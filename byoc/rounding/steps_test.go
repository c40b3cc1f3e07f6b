// SPDX-License-Identifier: Apache-2.0

package rounding

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStepsReachBothEndsAndHaveZero(t *testing.T) {
	t.Parallel()
	for _, ends := range [][2]float64{{0, 6}, {-3, 3}, {-1, 0}, {2, 5}, {-7, -2}, {-0.1, 30}, {0, 0}, {0, 1e-45}} {
		s := Reaching(ends[0], ends[1])
		require.Positive(t, s.Scale)
		require.Equal(t, float64(float32(s.Scale)), s.Scale)
		require.True(t, s.Zero >= 0 && s.Zero <= 255)
		low, high := -float64(s.Zero)*s.Scale, float64(255-s.Zero)*s.Scale
		if ends[1]-ends[0] > 1e-30 {
			assert.InDelta(t, min(ends[0], 0), low, s.Scale)
			assert.InDelta(t, max(ends[1], 0), high, s.Scale)
		}
	}
}

// seen counts numbers.
func seen(numbers []float64) *Seen {
	s := &Seen{Low: math.Inf(1), High: math.Inf(-1), Counts: make([]int64, 4096)}
	for _, x := range numbers {
		s.Low, s.High = min(s.Low, x), max(s.High, x)
	}
	for _, x := range numbers {
		if x != 0 {
			s.Counts[min(4095, int((x-s.Low)/(s.High-s.Low)*4096))]++
		}
	}
	return s
}

// off is by how much numbers are off, rounded: the mean of squares.
func off(numbers []float64, s Steps) float64 {
	sum := 0.0
	for _, x := range numbers {
		rounded := (max(0, min(255, math.Round(x/s.Scale)+float64(s.Zero))) - float64(s.Zero)) * s.Scale
		sum += (x - rounded) * (x - rounded)
	}
	return sum / float64(len(numbers))
}

// Steps are as good as the best of all that a search by brute force over what is really off finds, within a few
// percent.
func TestStepsAreOffByTheLeast(t *testing.T) {
	t.Parallel()
	for name, draw := range map[string]func(r *rand.Rand) float64{
		"normal":    func(r *rand.Rand) float64 { return r.NormFloat64() },
		"rectified": func(r *rand.Rand) float64 { return max(0, r.NormFloat64()) },
		"even":      func(r *rand.Rand) float64 { return 2*r.Float64() - 0.5 },
		"one far away": func(r *rand.Rand) float64 {
			if r.IntN(5000) == 0 {
				return 40
			}
			return r.NormFloat64()
		},
		"below": func(r *rand.Rand) float64 { return -r.ExpFloat64() },
	} {
		r := rand.New(rand.NewPCG(1, 2))
		numbers := make([]float64, 20000)
		for i := range numbers {
			numbers[i] = draw(r)
		}
		s := seen(numbers)
		best := math.Inf(1)
		for i := 1; i <= 25; i++ {
			for j := 1; j <= 25; j++ {
				best = min(best, off(numbers, Reaching(s.Low*float64(i)/25, s.High*float64(j)/25)))
			}
		}
		got := off(numbers, s.Steps())
		assert.LessOrEqual(t, got, 1.05*best, name)
		assert.LessOrEqual(t, got, 1.01*off(numbers, Reaching(s.Low, s.High)), "%s: no worse than the whole reach", name)
	}
}

func TestOneNumberIsARange(t *testing.T) {
	t.Parallel()
	s := &Seen{Low: 3, High: 3, Counts: []int64{5}}
	assert.InDelta(t, 3, float64(255-s.Steps().Zero)*s.Steps().Scale, 0.2)
	s = &Seen{Counts: []int64{0}}
	assert.Positive(t, s.Steps().Scale)
}

// Noise is what is really off, by the numbers' own squares.
func TestNoise(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	numbers, squares := make([]float64, 20000), 0.0
	for i := range numbers {
		numbers[i] = max(0, r.NormFloat64())
		squares += numbers[i] * numbers[i]
	}
	s := seen(numbers)
	s.Squares = squares
	for _, steps := range []Steps{s.Steps(), Reaching(0, 1), Reaching(-8, 8)} {
		assert.InEpsilon(t, off(numbers, steps)*float64(len(numbers))/squares, s.Noise(steps), 0.05)
	}
	assert.Zero(t, (&Seen{Counts: []int64{0}}).Noise(Usual))
}

func TestWhatIsKeptIsWhatWasSeen(t *testing.T) {
	t.Parallel()
	s := seen([]float64{-1, 0.5, 0.75, 3})
	s.Squares, s.Gain, s.ChannelGain = 11.8125, 2, 3
	learnt := s.Learnt(s.Steps())
	assert.Equal(t, Learnt{Steps: s.Steps(), Noise: s.Noise(s.Steps()), Gain: 2, ChannelGain: 3}, learnt)
	require.NoError(t, learnt.Validate())
	for _, change := range []func(l *Learnt){
		func(l *Learnt) { l.Scale = 0 }, func(l *Learnt) { l.Scale = math.Inf(1) }, func(l *Learnt) { l.Zero = 256 },
		func(l *Learnt) { l.Zero = -1 }, func(l *Learnt) { l.Noise = math.NaN() }, func(l *Learnt) { l.Gain = -1 },
	} {
		wrong := learnt
		change(&wrong)
		require.Error(t, wrong.Validate(), "%+v", wrong)
	}
}
