package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
)

// Extra holds the keys of a record that this version does not know. They are
// written back as they were read: an older tool must not drop what a newer one
// recorded.
type Extra map[string]json.RawMessage

// encodeRecord returns record as one JSON object: its own keys in the order of
// its fields, then extra's in alphabetical order. record must be a struct.
func encodeRecord(record any, extra Extra) ([]byte, error) {
	body, err := encodeJSON(record)
	if err != nil {
		return nil, err
	}
	known := recordKeys(record)
	names := make([]string, 0, len(extra))
	for name := range extra {
		if !slices.Contains(known, strings.ToLower(name)) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return body, nil
	}
	slices.Sort(names)
	out := bytes.NewBuffer(body[:len(body)-1])
	for _, name := range names {
		key, err := encodeJSON(name)
		if err != nil {
			return nil, err
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		out.Write(key)
		out.WriteByte(':')
		out.Write(extra[name])
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// encodeJSON is json.Marshal without the escaping of <, > and &: the records
// hold paths and are read by people.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decodeRecord fills record, a pointer to a struct, from a JSON object and
// returns the keys it does not know.
func decodeRecord(data []byte, record any) (Extra, error) {
	if err := json.Unmarshal(data, record); err != nil {
		return nil, err
	}
	var all Extra
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	if all == nil {
		// The text "null" fills anything with nothing.
		return nil, errors.New("not an object")
	}
	known := recordKeys(record)
	for name := range all {
		// The decoder matches names whatever their case.
		if slices.Contains(known, strings.ToLower(name)) {
			delete(all, name)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// recordKeys returns the lower-case JSON keys of a struct or pointer to one.
func recordKeys(record any) []string {
	t := reflect.TypeOf(record)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	keys := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			keys = append(keys, strings.ToLower(name))
		}
	}
	return keys
}

// readRecord fills record from one of the unit's JSON files. It reports whether
// there is such a file.
func (u Unit) readRecord(name string, record json.Unmarshaler) (bool, error) {
	data, err := u.read(name, recordMax)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	if err := record.UnmarshalJSON(data); err != nil {
		return true, fmt.Errorf("read %s: %w: %w", name, ErrMalformed, err)
	}
	return true, nil
}
