// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"math/rand/v2"
	"slices"
)

// confidence is the coverage that intervals are made for.
const confidence = 0.95

// Ratio is a paired ratio: two things were run in turn, and the times of each turn are divided.
type Ratio struct {
	// Median is the median of the turns' ratios.
	Median float64 `json:"median"`
	// Low and High enclose the median of what the ratio is drawn from with the probability Coverage: order statistics, by
	// the sign test, which assumes nothing about the distribution. With few turns they are the least and the greatest
	// ratio, and Coverage is below 95 %.
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	Coverage float64 `json:"coverage"`
}

// median is the middle of the values, or the mean of the two in the middle; NaN of none.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// pairedRatio divides the times of turns, above by below; both have as many. The zero Ratio of none.
func pairedRatio(above, below []float64) Ratio {
	sorted := slices.Sorted(slices.Values(ratios(above, below)))
	if len(sorted) == 0 {
		return Ratio{}
	}
	rank, coverage := signTestRank(len(sorted))
	return Ratio{Median: median(sorted), Low: sorted[rank], High: sorted[len(sorted)-1-rank], Coverage: coverage}
}

// ratios are the turns' ratios, in the order of the turns.
func ratios(above, below []float64) []float64 {
	out := make([]float64, min(len(above), len(below)))
	for i := range out {
		out[i] = above[i] / below[i]
	}
	return out
}

// signTestRank is the greatest r for which the order statistics r and n-1-r of n values (counted from 0) enclose the
// median with the wanted confidence, and with which probability they do; where there are too few values, 0 and what
// can be had.
func signTestRank(n int) (rank int, coverage float64) {
	below := math.Pow(0.5, float64(n)) // P(at most `rank` values lie below the median)
	coverage = 1 - 2*below
	probability := below
	for r := 1; 2*r < n; r++ {
		probability *= float64(n-r+1) / float64(r)
		if below += probability; 1-2*below < confidence {
			break
		}
		rank, coverage = r, 1-2*below
	}
	return rank, coverage
}

// GeometricMean is the geometric mean of several networks' ratios, with a bootstrap interval.
type GeometricMean struct {
	Mean float64 `json:"mean"`
	// Low and High enclose 95 % of the means of resampled turns.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Networks is how many networks are in it.
	Networks int `json:"networks"`
}

// resamples is how many times the turns are drawn anew.
const resamples = 2000

// geometricMean takes the ratios of the turns of each network: the geometric mean of the networks' medians. Drawn anew
// are the turns, network by network, always in the same way.
func geometricMean(networks [][]float64) GeometricMean {
	g := GeometricMean{Networks: len(networks)}
	if len(networks) == 0 {
		return g
	}
	mean := func(pick func(turns []float64) []float64) float64 {
		sum := 0.0
		for _, turns := range networks {
			sum += math.Log(median(pick(turns)))
		}
		return math.Exp(sum / float64(len(networks)))
	}
	g.Mean = mean(func(turns []float64) []float64 { return turns })
	random := rand.New(rand.NewPCG(1, 2))
	means := make([]float64, resamples)
	for i := range means {
		means[i] = mean(func(turns []float64) []float64 {
			drawn := make([]float64, len(turns))
			for k := range drawn {
				drawn[k] = turns[random.IntN(len(turns))]
			}
			return drawn
		})
	}
	slices.Sort(means)
	tail := int((1 - confidence) / 2 * resamples)
	g.Low, g.High = means[tail], means[resamples-1-tail]
	return g
}
