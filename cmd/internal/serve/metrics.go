// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are what Prometheus is told.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	seconds   prometheus.Histogram
	compute   prometheus.Histogram
	computing prometheus.Gauge
	// rows and together are of batches; nil where nothing is gathered.
	rows, together prometheus.Histogram
}

// mostCounted is the greatest bound of rows that is counted by itself where a batch has as many as come.
const mostCounted = 1024

// newMetrics has those of a model; rows is how many a batch has, or AsMany, and 0 where nothing is gathered.
func newMetrics(model string, rows int64) *metrics {
	labels := prometheus.Labels{"model": model}
	// From a tenth of a millisecond to a minute and a half.
	buckets := prometheus.ExponentialBuckets(1e-4, 2, 20)
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "collage_requests_total", ConstLabels: labels,
			Help: "Requests for inference, by the code of the answer (499: the client had gone)."}, []string{"code"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "collage_request_seconds", ConstLabels: labels,
			Help: "Seconds from a request to its answer.", Buckets: buckets}),
		compute: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "collage_compute_seconds", ConstLabels: labels,
			Help: "Seconds that the model took.", Buckets: buckets}),
		computing: prometheus.NewGauge(prometheus.GaugeOpts{Name: "collage_computing", ConstLabels: labels,
			Help: "Requests that are being computed."}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.compute, m.computing, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if rows != 0 {
		if rows == AsMany {
			rows = mostCounted
		}
		// One, two, four, ... as far as a batch goes.
		var sizes []float64
		for size := int64(1); size < rows; size *= 2 {
			sizes = append(sizes, float64(size))
		}
		sizes = append(sizes, float64(rows))
		m.rows = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "collage_batch_rows", ConstLabels: labels,
			Help: "Rows of requests in a run of the model.", Buckets: sizes})
		m.together = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "collage_batch_requests", ConstLabels: labels,
			Help: "Requests that a run of the model answered.", Buckets: sizes})
		m.registry.MustRegister(m.rows, m.together)
	}
	return m
}

// batched counts a batch.
func (m *metrics) batched(requests int, rows int64) {
	m.rows.Observe(float64(rows))
	m.together.Observe(float64(requests))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// done counts an answer.
func (m *metrics) done(code int, took time.Duration) {
	m.requests.WithLabelValues(strconv.Itoa(code)).Inc()
	m.seconds.Observe(took.Seconds())
}

// computed counts one run of the model, which computing was told of.
func (m *metrics) computed(took time.Duration) {
	m.computing.Dec()
	m.compute.Observe(took.Seconds())
}
