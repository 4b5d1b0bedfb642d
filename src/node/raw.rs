//! Exports without napi's wrapper, for what is called for every event: to keep track of borrowed arguments, the wrapper takes locks
//! and memory for each call, half of what a call costs.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr;

use napi::bindgen_prelude::{FromNapiValue, JsObjectValue, JsValue, Object, Unknown, sys};
use napi::{Env, JsError, JsString};

use super::boundary;
use super::error::{Code, Error, Result, error};

/// Arguments that a call may have.
const MOST: usize = 6;

/// What a call of JavaScript's came with. Lives no longer than the call.
pub struct Arguments<'call> {
    env: sys::napi_env,
    values: [sys::napi_value; MOST],
    given: usize,
    call: PhantomData<&'call ()>,
}

/// An export that returns a number, or a value.
pub type Export<R = f64> = fn(&Arguments<'_>) -> Result<R>;

/// A value of the call under way, to be returned by it.
pub struct Value(sys::napi_value);

/// What an export can return.
pub trait Returned: Sized + 'static {
    fn returned(self, env: sys::napi_env) -> Result<Value>;
}

impl Returned for f64 {
    fn returned(self, env: sys::napi_env) -> Result<Value> {
        let mut value = ptr::null_mut();
        // SAFETY: `env` is that of the call under way.
        ok(unsafe { sys::napi_create_double(env, self, &mut value) })?;
        Ok(Value(value))
    }
}

impl Returned for Value {
    fn returned(self, _: sys::napi_env) -> Result<Value> {
        Ok(self)
    }
}

/// Makes `export` callable by this name.
pub fn export<R: Returned>(env: &Env, exports: &mut Object<'_>, name: &str, export: Export<R>) -> napi::Result<()> {
    let mut made = ptr::null_mut();
    // SAFETY: `env` is alive while a module is registered, `name` is as long as it says, and `made` outlives the call.
    let status = unsafe {
        let name_at = name.as_ptr().cast();
        sys::napi_create_function(
            env.raw(),
            name_at,
            name.len() as isize,
            Some(called::<R>),
            export as *mut c_void,
            &mut made,
        )
    };
    napi::check_status!(status)?;
    // SAFETY: `made` is a value of this scope.
    let function = unsafe { Unknown::from_napi_value(env.raw(), made) }?;
    exports.set_named_property(name, function)
}

/// What Node calls.
extern "C" fn called<R: Returned>(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    boundary(|| {
        boundary(|| returned::<R>(env, info)).or_else(|err| {
            // SAFETY: `env` is that of the call under way.
            unsafe { JsError::from(err).throw_into(env) };
            Ok(ptr::null_mut())
        })
    })
    .unwrap_or(ptr::null_mut())
}

fn returned<R: Returned>(env: sys::napi_env, info: sys::napi_callback_info) -> Result<sys::napi_value> {
    let (mut given, mut values, mut data) = (MOST, [ptr::null_mut(); MOST], ptr::null_mut());
    // SAFETY: `env` and `info` are those of the call under way; there is room for as many values as `given` says, and those beyond
    // the given ones are set to undefined.
    ok(unsafe { sys::napi_get_cb_info(env, info, &mut given, values.as_mut_ptr(), ptr::null_mut(), &mut data) })?;
    // SAFETY: only `export` makes a function of `called::<R>`, with an `Export<R>` as its data.
    let export = unsafe { std::mem::transmute::<*mut c_void, Export<R>>(data) };
    let value = export(&Arguments { env, values, given, call: PhantomData })?.returned(env)?;
    Ok(value.0)
}

#[inline]
fn ok(status: sys::napi_status) -> Result<()> {
    if status == sys::Status::napi_ok { Ok(()) } else { Err(wrong(status)) }
}

#[cold]
fn wrong(status: sys::napi_status) -> Error {
    error(Code::Argument, format!("an argument is not what it should be: status {status}"))
}

impl Arguments<'_> {
    /// A number.
    pub fn number(&self, at: usize) -> Result<f64> {
        let mut number = 0.0;
        // SAFETY: `env` and the value are of the call under way.
        ok(unsafe { sys::napi_get_value_double(self.env, self.values[at], &mut number) })?;
        Ok(number)
    }

    /// A number; `None` where there is no such argument, or it is undefined.
    pub fn number_given(&self, at: usize) -> Result<Option<f64>> {
        let mut kind = sys::ValueType::napi_undefined;
        // SAFETY: `env` and the value are of the call under way: those beyond the given ones are undefined.
        ok(unsafe { sys::napi_typeof(self.env, self.values[at], &mut kind) })?;
        if kind == sys::ValueType::napi_undefined { Ok(None) } else { self.number(at).map(Some) }
    }

    /// Strings; none where there is no such argument. May run JavaScript where it is not an array of strings.
    pub fn strings(&self, at: usize) -> Result<Vec<String>> {
        if at >= self.given {
            return Ok(Vec::new());
        }
        // SAFETY: `env` and the value are of the call under way.
        let strings = unsafe { Option::<Vec<String>>::from_napi_value(self.env, self.values[at]) };
        strings.map(Option::unwrap_or_default).map_err(|err| error(Code::Argument, err.reason.clone()))
    }

    /// The numbers in an `ArrayBuffer`. (Of a typed array, Node asks in turn for each of its kinds.)
    ///
    /// # Safety
    ///
    /// Sound where nothing writes to the buffer, detaches or resizes it while the slice lives: where no JavaScript runs meanwhile. No
    /// other thread has its memory: one that is shared is no `ArrayBuffer`, and is refused.
    pub unsafe fn numbers(&self, at: usize) -> Result<&[f64]> {
        let (data, len) = self.buffer(at)?;
        // SAFETY: V8 has said where the buffer's bytes are and how many; the caller promises that they stay there, unchanged.
        Ok(unsafe { std::slice::from_raw_parts(data, len) })
    }

    /// [`Self::numbers`], to write results to.
    ///
    /// # Safety
    ///
    /// Sound where nothing else reads or writes the buffer while the slice lives, and this is asked for once. `index.js` makes each
    /// scratch array for one handle of one thread, over a plain `ArrayBuffer` that it never gives away or transfers, and passes it to
    /// one export at a time; no JavaScript runs while an export does, and no export that gets it keeps it.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn numbers_mut(&self, at: usize) -> Result<&mut [f64]> {
        let (data, len) = self.buffer(at)?;
        // SAFETY: V8 has said where the buffer's bytes are and how many; the caller promises that nobody else is at them.
        Ok(unsafe { std::slice::from_raw_parts_mut(data, len) })
    }

    /// Where the numbers of an `ArrayBuffer` are, and how many.
    fn buffer(&self, at: usize) -> Result<(*mut f64, usize)> {
        let mut unshared = false;
        // SAFETY: `env` and the value are of the call under way.
        ok(unsafe { sys::napi_is_arraybuffer(self.env, self.values[at], &mut unshared) })?;
        if !unshared {
            // Asked for its memory, Node from 22.21 on gives that of a shared one, too.
            return Err(wrong(sys::Status::napi_arraybuffer_expected));
        }
        let (mut data, mut bytes) = (ptr::null_mut(), 0);
        // SAFETY: `env` and the value are of the call under way.
        ok(unsafe { sys::napi_get_arraybuffer_info(self.env, self.values[at], &mut data, &mut bytes) })?;
        let data = data.cast::<f64>();
        // One that has been detached has no memory.
        if data.is_null() || !data.is_aligned() {
            return Ok((ptr::NonNull::dangling().as_ptr(), 0));
        }
        Ok((data, bytes / size_of::<f64>()))
    }

    /// The environment, to make values of.
    pub fn env(&self) -> Env {
        Env::from_raw(self.env)
    }

    /// An array of these strings.
    pub fn array(&self, strings: &[JsString<'_>]) -> Result<Value> {
        let mut array = ptr::null_mut();
        // SAFETY: `env` and the strings are of the call under way, and `array` outlives the call to Node.
        ok(unsafe { sys::napi_create_array_with_length(self.env, strings.len(), &mut array) })?;
        for (at, string) in strings.iter().enumerate() {
            // SAFETY: as above.
            ok(unsafe { sys::napi_set_element(self.env, array, at as u32, string.raw()) })?;
        }
        Ok(Value(array))
    }

    /// Reads a string into `text`.
    pub fn text(&self, at: usize, text: &mut Text) -> Result<()> {
        let value = self.values[at];
        let mut length = 0;
        // SAFETY: `env` and the value are of the call under way; without room only the length is asked for, which V8 knows. (That in
        // UTF-8, which would tell what is ASCII, it has to count.)
        ok(unsafe { sys::napi_get_value_string_utf16(self.env, value, ptr::null_mut(), 0, &mut length) })?;
        let Text { units, bytes, ascii } = text;
        // A terminator is written, too.
        units.clear();
        units.reserve(length + 1);
        let mut written = 0;
        // SAFETY: there is room for `length` code units and the terminator, and `written` of them are written.
        unsafe {
            ok(sys::napi_get_value_string_utf16(self.env, value, units.as_mut_ptr(), length + 1, &mut written))?;
            units.set_len(written);
        }
        bytes.resize(written, 0);
        let mut all = 0;
        for (byte, unit) in bytes.iter_mut().zip(&*units) {
            *byte = *unit as u8;
            all |= unit;
        }
        *ascii = all < 0x80;
        Ok(())
    }
}

/// A string that was read, and the room for the next.
#[derive(Default)]
pub struct Text {
    bytes: Vec<u8>,
    units: Vec<u16>,
    ascii: bool,
}

/// What a string consists of.
pub enum Read<'a> {
    /// ASCII characters alone: its bytes are its WTF-8.
    Ascii(&'a [u8]),
    /// Any UTF-16 code units.
    Units(&'a [u16]),
}

impl Text {
    /// What was read last.
    pub fn read(&self) -> Read<'_> {
        if self.ascii { Read::Ascii(&self.bytes) } else { Read::Units(&self.units) }
    }

    /// Bytes of room.
    pub fn room(&self) -> usize {
        self.bytes.capacity() + self.units.capacity() * size_of::<u16>()
    }
}
