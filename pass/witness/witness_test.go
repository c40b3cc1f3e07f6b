// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// engine is a program that stands where Python does.
func engine(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "engine")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700))
	return path
}

func ask(t *testing.T, script string) (*Witness, string) {
	t.Helper()
	folder := t.TempDir()
	w, err := Ask(engine(t, script), []string{"SAID=so"}, json.RawMessage(`{"model": "m.onnx"}`), folder)
	require.NoError(t, err)
	return w, folder
}

func TestTheEngineAnswers(t *testing.T) {
	w, folder := ask(t, `read question; echo "$question" > "$0.question"
		echo '{"engine": "'$1 $2 $SAID'", "loose": true}'`)
	testimony, err := w.Wait(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, "-m collage.witness so", testimony.Engine)
	assert.True(t, testimony.Loose)
	assert.Empty(t, testimony.Unchecked)
	assert.Equal(t, folder, filepath.Dir(testimony.Answers))

	var question struct {
		Model, Out string
		Seconds    int
	}
	text, err := os.ReadFile(w.command.Path + ".question")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &question))
	assert.Equal(t, "m.onnx", question.Model)
	assert.Equal(t, testimony.Answers, question.Out)
	assert.Positive(t, question.Seconds)

	w.Close()
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestTheReasonWhyThereIsNoAnswer(t *testing.T) {
	for script, want := range map[string]string{
		`echo '{"unchecked": "it draws"}'`:     "it draws",
		`echo "no such module" >&2; exit 3`:    "the engine's process ended: exit status 3 no such module",
		`echo nonsense`:                        "the engine's process ended: <nil> ",
		`kill -9 $$`:                           "the engine's process ended: signal: killed ",
		`echo '{"unchecked": "late"}'; exit 1`: "late",
	} {
		w, _ := ask(t, script)
		testimony, err := w.Wait(t.Context(), time.Minute)
		require.NoError(t, err)
		assert.Equal(t, Testimony{Unchecked: want}, testimony, script)
		w.Close()
	}
}

func TestAnEngineThatHangsIsEnded(t *testing.T) {
	w, _ := ask(t, `sleep 1000 & sleep 1000`)
	testimony, err := w.Wait(t.Context(), 10*time.Millisecond)
	require.NoError(t, err)
	assert.Equal(t, "the other engine had no answer after another 10ms", testimony.Unchecked)
	assert.NotNil(t, w.command.ProcessState, "it was waited for")

	// Who asks no longer does not wait.
	w, _ = ask(t, `sleep 1000`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.Wait(ctx, time.Hour)
	require.ErrorIs(t, err, context.Canceled)
	w.Close()
	assert.NotNil(t, w.command.ProcessState, "it was waited for")
}

func TestAnotherEngineIsAsked(t *testing.T) {
	w, folder := ask(t, `read question
		case "$question" in *'"second":true'*) echo '{"engine": "two"}';; *) echo '{"engine": "one"}';; esac`)
	first, err := w.Wait(t.Context(), time.Minute)
	require.NoError(t, err)
	second, err := w.Second(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"one", "two"}, []string{first.Engine, second.Engine})
	assert.NotEqual(t, first.Answers, second.Answers)
	w.Close()
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, left)

	none, err := Known(Testimony{Engine: "one"}).Second(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "there is no other engine", none.Unchecked)
}

func TestNobodyIsAsked(t *testing.T) {
	var none *Witness
	testimony, err := none.Wait(t.Context(), time.Hour)
	require.NoError(t, err)
	assert.Equal(t, Testimony{}, testimony)
	none.Close()

	_, err = Ask("/bin/false", nil, json.RawMessage(`[]`), t.TempDir())
	assert.ErrorContains(t, err, "is not readable")
	folder := t.TempDir()
	_, err = Ask("/nonexistent/python", nil, json.RawMessage(`{}`), folder)
	assert.ErrorContains(t, err, "asking another engine")
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Empty(t, left)
}
