// What a training computes on a device beside products of matrices.
//
// One source for GPUs, compiled by NVRTC when a training begins, and for the host's C compiler, with which the
// tests run whole trainings. What differs lies in a prelude before it (`prelude.cu`; `host.c` of the tests):
//
//   EACH(name, Arguments) { ... }  a kernel: what is done for each `i` below `a->count`, in any order
//   FUNCTION                       before a function that kernels call
//   bits_of, float_of              the bits of a float, and back
//   add, raise_to                  adds to an integer, makes it at least so large; whatever else does so
//
// Nothing here depends on the order of threads: sums of floats are made by one thread each, in a fixed order, and
// what many threads add to is an integer. All arguments are eight bytes wide; `arguments.rs` has the same names in
// the same order.

typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned char u8;

// What goes through products of matrices.
#ifdef BF16
typedef unsigned short real;

// To the nearest, to the even one of two.
FUNCTION real to_real(float value) {
    u32 bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (real)((bits >> 16) | 0x40u);
    }
    return (real)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

FUNCTION float to_float(real value) {
    return float_of((u32)value << 16);
}
#else
typedef float real;

FUNCTION real to_real(float value) {
    return value;
}

FUNCTION float to_float(real value) {
    return value;
}
#endif

// ---- embeddings ----

// A value of a row that comes out of a table.
typedef struct {
    // The table's first value among those of all tables, and its first row among all rows.
    u64 start;
    u64 rows_start;
    // Which id of the row.
    u64 place;
    u64 rows;
    u64 width;
    // Which value of the table's row.
    u64 within;
} Column;

// The row of a table for an id: the first for those that training has not seen.
FUNCTION u64 row_of(const Column* column, const int* ids) {
    i64 id = ids[column->place];
    return id >= 0 && (u64)id + 1 < column->rows ? (u64)id + 1 : 0;
}

FUNCTION u64 value_of(const Column* column, u64 row) {
    return column->start + row * column->width + column->within;
}

// Of all entries that touch a row in a step, the first has the largest stamp.
FUNCTION u64 stamp_of(u64 step, u64 entry) {
    return step << 32 | (0xffffffffull - entry);
}

// What a slope of 1 is as an integer: such that the largest slope has `room` bits. `e` is the exponent of the
// largest, which is below 2 to the power of e + 1.
FUNCTION double grain(u64 peak, u64 room) {
    int exponent = (int)(peak >> 23) - 127;
    return ldexp(1.0, (int)room - exponent - 1);
}

FUNCTION int is_finite(u64 peak) {
    return peak < 0x7f800000u;
}

FUNCTION float table_slope(const u64* sums, u64 value, u64 peak, u64 room) {
    if (!is_finite(peak)) {
        return float_of(0x7fc00000u);
    }
    return (float)((double)(i64)sums[value] / grain(peak, room));
}

// ---- forward ----

typedef struct {
    u64 count;
    const float* dense;
    const int* ids;
    const float* tables;
    const Column* columns;
    real* values;
    u64 dense_width;
    u64 width;
    u64 stride;
    u64 ids_width;
} Gather;

// Rows as the first layer takes them: numbers, then what is embedded.
EACH(gather, Gather) {
    u64 row = i / a->width;
    u64 place = i % a->width;
    float value;
    if (place < a->dense_width) {
        value = a->dense[row * a->dense_width + place];
    } else {
        const Column* column = a->columns + (place - a->dense_width);
        value = a->tables[value_of(column, row_of(column, a->ids + row * a->ids_width))];
    }
    a->values[row * a->stride + place] = to_real(value);
}

typedef struct {
    u64 count;
    const float* sums;
    const float* biases;
    real* values;
    u64 width;
    u64 stride;
} Activate;

// Biases and relu after a hidden layer's product.
EACH(activate, Activate) {
    u64 row = i / a->width;
    u64 place = i % a->width;
    float value = a->sums[i] + a->biases[place];
    a->values[row * a->stride + place] = to_real(value > 0.0f ? value : 0.0f);
}

typedef struct {
    u64 count;
    const float* sums;
    const float* bias;
    const float* labels;
    const float* weights;
    const u8* mask;
    const int* ids;
    const float* tables;
    const Column* columns;
    u64 added;
    u64 ids_width;
    u64 logistic;
    float* slopes;
    real* values;
    u64 stride;
    double* lost;
    u64* strange;
    u64* peak;
} Judge;

// Results, their losses, and the slopes of these. `sums`, `weights` and `mask` may be null.
EACH(judge, Judge) {
    if (i == 0) {
        // Kernels come one after the other: no other one has raised it yet.
        *a->peak = 0;
    }
    float output = *a->bias + (a->sums ? a->sums[i] : 0.0f);
    for (u64 at = 0; at < a->added; at++) {
        const Column* column = a->columns + at;
        output += a->tables[value_of(column, row_of(column, a->ids + i * a->ids_width))];
    }
    float label = a->labels[i];
    float weight = a->weights ? a->weights[i] : 1.0f;
    if (a->mask && a->mask[i] == 0) {
        weight = 0.0f;
    }
    double lost = 0.0;
    float slope = 0.0f;
    if (weight != 0.0f) {
        if (a->logistic) {
            if (!(label >= 0.0f && label <= 1.0f)) {
                // The first of them has the largest.
                raise_to(a->strange, a->count - i);
            }
            double wide = output;
            lost = (wide > 0.0 ? wide : 0.0) + log1p(exp(-fabs(wide))) - (double)label * wide;
            slope = (float)(1.0 / (1.0 + exp(-wide))) - label;
        } else {
            float error = output - label;
            lost = (double)error * (double)error;
            slope = 2.0f * error;
        }
    }
    a->lost[2 * i] = (double)weight * lost;
    a->lost[2 * i + 1] = weight;
    a->slopes[i] = weight * slope;
    a->values[i * a->stride] = to_real(weight * slope);
}

typedef struct {
    u64 count;
    const double* from;
    double* to;
    u64 pairs;
    u64 each;
} Fold;

// Pairs, added up so many at a time.
EACH(fold, Fold) {
    double first = 0.0;
    double second = 0.0;
    for (u64 at = i * a->each; at < (i + 1) * a->each && at < a->pairs; at++) {
        first += a->from[2 * at];
        second += a->from[2 * at + 1];
    }
    a->to[2 * i] = first;
    a->to[2 * i + 1] = second;
}

// ---- back ----

typedef struct {
    u64 count;
    const float* sums;
    const real* values;
    real* slopes;
    u64 width;
    u64 stride;
} Unrelu;

// What relu has cut off has no slope.
EACH(unrelu, Unrelu) {
    u64 at = (i / a->width) * a->stride + i % a->width;
    a->slopes[at] = to_float(a->values[at]) > 0.0f ? to_real(a->sums[i]) : to_real(0.0f);
}

// The slopes by what was embedded: of row r and column c at [r * stride + first + c * step].
typedef struct {
    u64 count;
    u64 entries;
    u64 columns_count;
    const float* slopes;
    u64 stride;
    u64 first;
    u64 step;
    u64* peak;
} Peak;

// The largest slope, as bits: those of positive floats have the order of these, and what is no number is above.
EACH(peak, Peak) {
    u64 largest = 0;
    for (u64 at = i; at < a->entries; at += a->count) {
        u64 row = at / a->columns_count;
        u64 column = at % a->columns_count;
        u64 bits = bits_of(a->slopes[row * a->stride + a->first + column * a->step]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    raise_to(a->peak, largest);
}

typedef struct {
    u64 count;
    u64 columns_count;
    const Column* columns;
    const int* ids;
    u64 ids_width;
    const float* slopes;
    u64 stride;
    u64 first;
    u64 step;
    u64* sums;
    u64* stamps;
    u64 training_step;
    const u64* peak;
    u64 room;
} Embed;

// The gradients of tables, as integers, so that the order in which they are added up changes nothing; and who is
// the first to touch a row. Ids that training has not seen have nothing to learn.
EACH(embed, Embed) {
    u64 row = i / a->columns_count;
    const Column* column = a->columns + i % a->columns_count;
    u64 of = row_of(column, a->ids + row * a->ids_width);
    if (of == 0) {
        return;
    }
    if (column->within == 0) {
        raise_to(a->stamps + column->rows_start + of, stamp_of(a->training_step, i));
    }
    u64 peak = *a->peak;
    if (is_finite(peak)) {
        float slope = a->slopes[row * a->stride + a->first + (i % a->columns_count) * a->step];
        add(a->sums + value_of(column, of), (u64)(i64)((double)slope * grain(peak, a->room)));
    }
}

// What an entry of the batch has to move: the value of a table, or nothing where another entry does.
typedef struct {
    u64 value;
    int moves;
} Own;

FUNCTION Own own_of(
    u64 i, u64 columns_count, const Column* columns, const int* ids, u64 ids_width, const u64* stamps, u64 step
) {
    const Column* column = columns + i % columns_count;
    u64 of = row_of(column, ids + (i / columns_count) * ids_width);
    Own own;
    own.value = value_of(column, of);
    own.moves = of != 0 && stamps[column->rows_start + of] == stamp_of(step, i - column->within);
    return own;
}

typedef struct {
    u64 count;
    const float* gradient;
    u64 gradient_count;
    u64 entries;
    u64 columns_count;
    const Column* columns;
    const int* ids;
    u64 ids_width;
    const u64* sums;
    const u64* stamps;
    u64 training_step;
    const u64* peak;
    u64 room;
    double* squares;
} Square;

// The squares of the gradient, added up by each thread for itself.
EACH(square, Square) {
    double sum = 0.0;
    for (u64 at = i; at < a->gradient_count; at += a->count) {
        sum += (double)a->gradient[at] * (double)a->gradient[at];
    }
    for (u64 at = i; at < a->entries; at += a->count) {
        Own own =
            own_of(at, a->columns_count, a->columns, a->ids, a->ids_width, a->stamps, a->training_step);
        if (own.moves) {
            double slope = table_slope(a->sums, own.value, *a->peak, a->room);
            sum += slope * slope;
        }
    }
    a->squares[2 * i] = sum;
    a->squares[2 * i + 1] = 0.0;
}

typedef struct {
    u64 count;
    const double* lost;
    const double* squares;
    double norm_max;
    const float* labels;
    u64 rows;
    u64* strange;
    double* control;
    double* report;
} Control;

// What the gradient is to be multiplied with, and whether there is anything to learn; and what the step came to:
// its mean loss and weight, whether a label cannot be a probability, and which. `squares` may be null.
EACH(control, Control) {
    double weight = a->lost[1];
    float scale = (float)(1.0 / (weight > 1e-300 ? weight : 1e-300));
    if (a->squares) {
        double norm = sqrt(a->squares[0]) * (double)scale;
        if (norm > a->norm_max) {
            scale *= (float)(a->norm_max / norm);
        }
    }
    a->control[0] = scale;
    a->control[1] = weight > 0.0 ? 1.0 : 0.0;
    u64 strange = *a->strange;
    a->report[0] = a->lost[0] / (weight > 1e-300 ? weight : 1e-300);
    a->report[1] = weight;
    a->report[2] = strange != 0 ? 1.0 : 0.0;
    a->report[3] = strange != 0 ? a->labels[a->rows - strange] : 0.0f;
    *a->strange = 0;
}

// ---- AdamW ----

FUNCTION float moved(
    float value, float gradient, float* mean, float* square, double rate, double mean_scale, double square_scale
) {
    *mean += (gradient - *mean) * (float)(1.0 - 0.9);
    *square += (gradient * gradient - *square) * (float)(1.0 - 0.999);
    return value - (float)rate * (*mean * (float)mean_scale) / (sqrtf(*square * (float)square_scale) + 1e-8f);
}

typedef struct {
    u64 count;
    const float* gradient;
    float* values;
    float* means;
    float* squares;
    real* copy;
    u64 width;
    u64 stride;
    const double* control;
    double rate;
    double mean_scale;
    double square_scale;
    double kept;
} Move;

// Weights or biases of a layer. Where there is a copy for products of matrices, it follows.
EACH(move, Move) {
    if (a->control[1] == 0.0) {
        return;
    }
    float gradient = a->gradient[i] * (float)a->control[0];
    float value = a->values[i] * (float)a->kept;
    value = moved(value, gradient, a->means + i, a->squares + i, a->rate, a->mean_scale, a->square_scale);
    a->values[i] = value;
    if (a->copy) {
        a->copy[(i / a->width) * a->stride + i % a->width] = to_real(value);
    }
}

typedef struct {
    u64 count;
    u64 columns_count;
    const Column* columns;
    const int* ids;
    u64 ids_width;
    u64* sums;
    const u64* stamps;
    u64 training_step;
    const u64* peak;
    u64 room;
    float* tables;
    float* means;
    float* squares;
    const double* control;
    double rate;
    double mean_scale;
    double square_scale;
} MoveTables;

// The rows of tables that the batch touches, each by the entry that is the first to do so.
EACH(move_tables, MoveTables) {
    Own own = own_of(i, a->columns_count, a->columns, a->ids, a->ids_width, a->stamps, a->training_step);
    if (!own.moves) {
        return;
    }
    u64 at = own.value;
    float gradient = table_slope(a->sums, at, *a->peak, a->room) * (float)a->control[0];
    a->sums[at] = 0;
    if (a->control[1] != 0.0) {
        a->tables[at] = moved(
            a->tables[at], gradient, a->means + at, a->squares + at, a->rate, a->mean_scale, a->square_scale
        );
    }
}

typedef struct {
    u64 count;
    const float* values;
    real* copy;
    u64 width;
    u64 stride;
} Copy;

// Weights as products of matrices take them.
EACH(copy_weights, Copy) {
    a->copy[(i / a->width) * a->stride + i % a->width] = to_real(a->values[i]);
}
