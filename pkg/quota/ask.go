package quota

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/prun-suite/prun/pkg/atomicfile"
	"github.com/prun-suite/prun/pkg/proc"
)

// ask runs agy's zero-turn usage command and writes the snapshot. After an error the
// snapshot is what it was.
func (k *Keeper) ask(ctx context.Context, agy string) error {
	limit := strconv.FormatInt(int64((k.Timeout+time.Second-1)/time.Second), 10) + "s"
	res, err := k.run(ctx, proc.RunSpec{
		Path: agy, Args: []string{agy, "-p", "/usage", "--output-format", "json", "--print-timeout", limit},
		Env: k.Env, Dir: k.Home, Limit: k.Timeout + timeoutMargin, MaxOutput: maxFile,
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrRejected, err)
	case res.TimedOut:
		return fmt.Errorf("%w: agy did not end within %v", ErrRejected, k.Timeout+timeoutMargin)
	case res.Exit.Code != 0:
		return fmt.Errorf("%w: agy exited with code %d", ErrRejected, res.Exit.Code)
	case res.Truncated:
		return fmt.Errorf("%w: agy said more than %d bytes", ErrRejected, maxFile)
	}
	old, err := atomicfile.ReadRegular(k.Source.Path, maxFile)
	if err != nil {
		old = nil
	}
	data, err := compose(res.Stdout, old, k.Now())
	if err != nil {
		return err
	}
	return atomicfile.Replace(k.Source.Path, data, 0o600)
}

// compose makes the bytes of a snapshot from agy's answer. It keeps every member of the
// usage as agy wrote it, and those of the old file that we do not know.
func compose(answer, old []byte, now time.Time) ([]byte, error) {
	// Readers in other languages refuse a file that is not UTF-8.
	answer = bytes.ToValidUTF8(answer, []byte("\uFFFD"))
	var top map[string]json.RawMessage
	if err := decode(answer, &top); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	usage, err := usageOf(top)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	snapshot := map[string]json.RawMessage{}
	if kept := map[string]json.RawMessage(nil); decode(bytes.ToValidUTF8(old, nil), &kept) == nil {
		for key, value := range kept {
			snapshot[key] = value
		}
	}
	snapshot["cached_at"] = json.RawMessage(seconds(now))
	snapshot["usage"] = usage
	delete(snapshot, "plan_tier")
	var tier string
	if json.Unmarshal(top["plan_tier"], &tier) == nil && tier != "" {
		snapshot["plan_tier"] = top["plan_tier"]
	}
	data, err := json.Marshal(snapshot)
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	if len(data) > maxFile && len(old) > 0 {
		// What we carry along must never make a file that we cannot read.
		return compose(answer, nil, now)
	}
	return append(data, '\n'), nil
}

// usageOf returns the data of an answer to the usage command, as it stands there.
func usageOf(top map[string]json.RawMessage) (json.RawMessage, error) {
	var status string
	if json.Unmarshal(top["status"], &status) != nil || status != "SUCCESS" {
		return nil, fmt.Errorf("status is %s", clipped(top["status"]))
	}
	var command map[string]json.RawMessage
	_ = json.Unmarshal(top["command"], &command)
	var name string
	_ = json.Unmarshal(command["name"], &name)
	if name != "usage" && name != "quota" {
		return nil, fmt.Errorf("command is %s", clipped(command["name"]))
	}
	var data map[string]json.RawMessage
	if json.Unmarshal(command["data"], &data) != nil || data == nil {
		return nil, fmt.Errorf("no data")
	}
	var groups []json.RawMessage
	_ = json.Unmarshal(data["groups"], &groups)
	for _, g := range groups {
		var group map[string]json.RawMessage
		_ = json.Unmarshal(g, &group)
		var name string
		if json.Unmarshal(group["name"], &name) == nil && name == GeminiGroup {
			return command["data"], nil
		}
	}
	return nil, fmt.Errorf("no group is called %s", GeminiGroup)
}

func clipped(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "missing"
	}
	return strconv.QuoteToASCII(string(raw[:min(len(raw), 80)]))
}

// seconds is a time as the original writes it.
func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMicro())/1e6, 'f', 6, 64)
}
